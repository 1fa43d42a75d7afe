"""Ended jobs over time, as the roll-ups have them: how many, how long they ran and waited.

A job's times are those of its last attempt: it waits from when on that could begin (it was due, no
longer blocked, back from the attempt before) until it begins.

A roll-up counts one minute. Retention makes old ones coarser: an hour each after 2 days, a day each
after 90, one for all that is older than 400 days; a bucket is never finer than what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from ..model import OUTCOME_CODE, OUTCOMES, Outcome
from ..operation import Row, Steps
from .columns import BUCKETS, RUN, WAIT
from .ground import FOREVER, MINUTE, Ground
from .retention import AGE


class StatsFilter(Struct, frozen=True):
    """Which ended jobs; times are microseconds of the end, in whole minutes, since inclusive and
    until exclusive."""

    since: int | None = None
    until: int | None = None
    queue: str | None = None
    task: str | None = None
    outcome: Outcome | None = None


class RollupRecord(NamedTuple):
    """Jobs that ended in one bucket of time, of one queue, task and outcome."""

    minute: int  # at which the bucket begins
    queue: str
    task: str
    outcome_code: int
    ended: int
    duration: int  # of all that ran
    histogram: tuple[int, ...]  # how many of those that ran took how long
    waited: int  # by all that ran
    wait_histogram: tuple[int, ...]

    @property
    def outcome(self) -> Outcome:
        return OUTCOMES[self.outcome_code] or Outcome.FAILED


def stats(
    store: Ground, filter: StatsFilter, unit: int | None = None, whole: bool = False
) -> Steps[list[RollupRecord]]:
    rows = yield store.sql.read_rollups(
        unit=unit or AGE,
        whole=int(whole),
        since=0 if filter.since is None else filter.since // MINUTE,
        until=FOREVER if filter.until is None else -(-filter.until // MINUTE),
        queue=filter.queue,
        task=filter.task,
        outcome=None if filter.outcome is None else OUTCOME_CODE[filter.outcome],
    )
    return [_record(row) for row in rows]


def _record(row: Row) -> RollupRecord:
    """Of a row: what is counted, and all its numbers."""
    bucket, numbers = row[:4], row[4:]
    run, wait = numbers[RUN:WAIT], numbers[WAIT:]
    return RollupRecord._make((*bucket, numbers[0], run[0], run[1:], wait[0], wait[1:]))


def percentile(histogram: Sequence[int], share: float, total: int | None = None) -> int | None:
    """The time, in microseconds, that this share of jobs stayed below; None when none ran.

    Inside a bucket, which spans a factor of ten, times are taken to be spread evenly by their
    magnitude, up to what is left of the `total` when each of the others took as little as it can.
    The last bucket has no end: its answer is where it begins.
    """
    rank = share * sum(histogram)
    starts = (0, *BUCKETS)
    left = None
    if total is not None:
        least = sum(start * jobs for start, jobs in zip(starts, histogram, strict=False))
        left = max(total - least, 0)
    below = 0
    for number, jobs in enumerate(histogram):
        if jobs and below + jobs >= rank:
            part = max(rank - below, 0) / jobs
            if number == len(BUCKETS):
                return BUCKETS[-1]
            found = round(starts[number] * 10**part if number else BUCKETS[0] * part)
            return found if left is None else min(found, starts[number] + left)
        below += jobs
    return None
