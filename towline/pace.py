"""How a worker works: its settings, and how many jobs it claims ahead of its free slots."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """How a worker works."""

    name: str
    queues: tuple[str, ...]
    concurrency: int
    lease: float
    grace: float
    prefetch: int | None
    drain: bool = False


class Pace:
    """While handlers are shorter than a turn, as many are claimed ahead as end during two turns:
    else the slots would stand idle meanwhile. Moving averages tell."""

    def __init__(self) -> None:
        self._turn = 0.002  # seconds a turn takes
        self._rate = 0.0  # attempts that end in a second
        self._at = time.monotonic()

    def begin_turn(self, ended: int) -> None:
        """A turn begins, which writes so many endings."""
        now = time.monotonic()
        self._rate += (ended / max(now - self._at, 1e-4) - self._rate) * 0.2
        self._at = now

    def end_turn(self) -> None:
        self._turn += (time.monotonic() - self._at - self._turn) * 0.1

    @property
    def courtesy(self) -> float:
        """Seconds that one of many idle workers lets another go first: as long as a claim takes."""
        return max(2 * self._turn, 0.004)

    def ahead(self, concurrency: int) -> int:
        during = self._rate * self._turn
        return round(2 * during) if during > concurrency / 2 else 0
