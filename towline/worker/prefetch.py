"""How many jobs a worker claims ahead of its free slots, measured from how it goes."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..model import Claimed

TURNS_AHEAD = 4  # as many are claimed ahead as end during so many turns
BYTES_AHEAD = 8 * 1024 * 1024  # of arguments that wait for a slot, about


class Prefetch:
    """The number of jobs to claim ahead: while handlers are shorter than a turn, as many as end
    during a few turns; else the slots would stand idle meanwhile, and turns would be small. Moving
    averages tell; it is 0 as soon as attempts stop to end."""

    def __init__(self) -> None:
        self._turn = 0.002  # seconds a turn takes
        self._rate = 0.0  # attempts that end in a second
        self._size = 0.0  # bytes of a job's arguments
        self._at = time.monotonic()
        self._ended_at = 0.0
        self.stalled = False  # what was claimed ahead went back, and nothing has ended since

    def begin_turn(self, ended: int) -> None:
        """A turn begins, which writes so many endings."""
        now = time.monotonic()
        if ended:
            self._ended_at = now
            self.stalled = False
        self._rate += (ended / max(now - self._at, 1e-4) - self._rate) * 0.2
        self._at = now

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
        return min(max(2 * self._turn, 0.05), 0.5)

    def claimed(self, jobs: Sequence[Claimed]) -> None:
        """These were claimed: see how large they are."""
        if jobs:
            size = sum(len(job.arguments) for job in jobs) / len(jobs)
            self._size = max(size, self._size + (size - self._size) * 0.2)

    def ahead(self, concurrency: int) -> int:
        during = self._rate * self._turn
        if during <= concurrency / 2 or time.monotonic() > self._ended_at + self.patience:
            return 0
        return min(round(TURNS_AHEAD * during), int(BYTES_AHEAD / max(self._size, 1.0)))
