"""Where pending jobs begin, while an old snapshot keeps the server from clearing away others.

A transaction that stays open (a report, a dump, a replica that hangs) pins the entries of every job
that was claimed since: each claim walks over all of them, a little further each time. So a worker
remembers where it found the first job of each queue and priority, and begins there.

What was stored late, comes back or is due has a lower number, and another priority is not known: a
*whole* claim, from the very beginning, sees all of it. There is one several times a second; so far
a job may have to wait, and others overtake it, and only while there are many entries to pass.
Promotion passes the entries of scheduled jobs, and is kept from it in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from ..records import Claimed
from ..times import MICRO

MANY = 2000  # entries that a claim may pass before the next begins behind them: 0.15 ms
PAUSE = MICRO // 4  # microseconds between whole claims
LONGEST = 5 * MICRO  # the same while a whole one passes millions
LATE = MICRO  # microseconds by which the commit of a scheduled job may be late and still be seen
WORKERS = 64  # of one process whose heads are remembered


class Heads:
    """What one worker knows: the first pending job of each queue and priority, when it last
    claimed from the beginning."""

    def __init__(self) -> None:
        self._heads: dict[tuple[str, int], int] = {}
        self._whole_at = 0  # when the next whole claim is due

    def ranges(self, queues: Sequence[str], now: int) -> list[dict[str, object]] | None:
        """Where to claim from; None: from the beginning."""
        if not self._heads or not self._whole_at - LONGEST <= now < self._whole_at:
            return None
        return [
            {"value": queue, "priority": priority, "head": head}
            for (queue, priority), head in self._heads.items()
            if queue in queues
        ]

    def claimed(self, jobs: Sequence[Claimed], passed: int, now: int, many: int = MANY) -> None:
        """A whole claim took these, in order, and passed so many entries of others."""
        if passed < many:
            self._heads.clear()
            return
        self._whole_at = _next_whole(passed, now)
        for job in reversed(jobs):
            self._heads[job.queue, job.priority] = job.job_id

    @property
    def whole_at(self) -> int | None:
        """When a job may be found that is hidden now; None: none is."""
        return self._whole_at if self._heads else None


class Due:
    """Before which time no scheduled job is left that is due."""

    def __init__(self) -> None:
        self._since = 0
        self._whole_at = 0

    def since(self, now: int) -> int | None:
        """From when on jobs may be due; None: from the beginning."""
        return self._since if self._whole_at - LONGEST <= now < self._whole_at else None

    def promoted(self, passed: int, now: int, many: int = MANY) -> None:
        """A whole promotion left nothing behind and passed so many entries of others."""
        self._since = now - LATE
        self._whole_at = 0 if passed < many else _next_whole(passed, now)

    @property
    def whole_at(self) -> int | None:
        return self._whole_at or None


class AllHeads(dict[int, Heads]):
    """The heads of each worker of this process, by its number."""

    def __missing__(self, worker: int) -> Heads:
        for gone in list(islice(self, max(len(self) - WORKERS + 1, 0))):
            self.pop(gone, None)
        return self.setdefault(worker, Heads())


def _next_whole(passed: int, now: int) -> int:
    """The more it has to pass, the later: a microsecond for each."""
    return now + min(max(PAUSE, passed), LONGEST)
