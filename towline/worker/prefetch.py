"""How many jobs a worker claims ahead of its free slots, measured from how it goes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..records import Claimed

TURNS_AHEAD = 4  # as many are claimed ahead as can run during so many turns
BYTES_AHEAD = 8 * 1024 * 1024  # of arguments that wait for a slot, about
OVERHEAD = 50e-6  # seconds between two handlers in one slot


class Prefetch:
    """The number of jobs to claim ahead: while handlers are shorter than a turn, as many as the
    slots can run during a few turns; else they would stand idle meanwhile, and turns would be
    small. Moving averages tell; it is 0 as soon as attempts stop to end."""

    def __init__(self) -> None:
        self._turn = 0.002  # seconds a turn takes
        self._handler = 0.0  # seconds a handler takes
        self._size = 0.0  # bytes of a job's arguments
        self._at = time.monotonic()
        self._ended = 0  # attempts since the last turn began
        self._lasted = 0.0  # seconds that those took together
        self._ended_at = 0.0
        self.stalled = False  # what was claimed ahead went back, and nothing has ended since

    def ended(self, lasted: float) -> None:
        """An attempt has ended, whose handler took so many seconds."""
        self._ended += 1
        self._lasted += lasted

    def begin_turn(self) -> None:
        self._at = time.monotonic()
        if self._ended:
            mean = self._lasted / self._ended
            weight = self._ended / (self._ended + 1)
            # One slow handler counts at once: what is claimed behind the next would wait for it.
            self._handler = max(mean, self._handler + (mean - self._handler) * weight)
            self._ended, self._lasted = 0, 0.0
            self._ended_at = self._at
            self.stalled = False

    def end_turn(self) -> None:
        self._turn += (time.monotonic() - self._at - self._turn) * 0.1

    @property
    def peer_delay(self) -> float:
        """Seconds that one of many idle workers lets another go first: as long as a claim takes."""
        return max(2 * self._turn, 0.004)

    @property
    def patience(self) -> float:
        """Seconds in which the next of the jobs claimed ahead begins, unless behind a slow one. A
        turn says how busy the machine is: quick handlers take longer then, too."""
        return min(max(2 * self._turn, 0.05), 0.25)

    def claimed(self, jobs: Sequence[Claimed]) -> None:
        """These were claimed: see how large they are."""
        if jobs:
            size = sum(len(job.arguments) for job in jobs) / len(jobs)
            self._size = max(size, self._size + (size - self._size) * 0.2)

    def ahead(self, concurrency: int) -> int:
        patience = self.patience
        if self._handler >= 2 * self._turn or time.monotonic() > self._ended_at + patience:
            return 0
        seconds = min(TURNS_AHEAD * self._turn, patience)
        number = round(concurrency * seconds / (self._handler + OVERHEAD))
        return min(number, int(BYTES_AHEAD / max(self._size, 1.0)))
