"""Ended jobs over time, as callers see them: how many, and how long they ran."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct

from ..errors import InvalidSetting
from ..model import Outcome
from ..store.cascade import MINUTE
from ..store.retention import DAY, HOUR
from ..store.stats import RollupRecord, percentile
from ..times import MICRO, to_datetime

By = Literal["minute", "hour", "day"]
UNITS = {"minute": 1, "hour": HOUR, "day": DAY}  # in minutes


class EndedJobs(Struct, frozen=True):
    """Jobs of one queue and task that ended with one outcome, in a bucket of time.

    `start` is the bucket's beginning, None when it is all of the time that was asked for. Of the
    `count` some may not have run: they have no part in `duration`, the seconds that the rest took
    together, nor in `histogram`: how many took less than 1 ms, 10 ms, 100 ms, 1 s, 10 s, 100 s,
    1000 s, and longer.
    """

    start: datetime | None
    queue: str
    task: str
    outcome: Outcome
    count: int
    duration: float
    histogram: tuple[int, ...]

    @property
    def p50(self) -> float | None:
        """Seconds that half of those that ran stayed below, estimated; None when none ran."""
        return run_time([self], 0.5)

    @property
    def p95(self) -> float | None:
        return run_time([self], 0.95)

    @property
    def p99(self) -> float | None:
        return run_time([self], 0.99)


def run_time(ended: Iterable[EndedJobs], share: float) -> float | None:
    """Seconds that this share of all of them stayed below, estimated; None when none ran."""
    together = [sum(jobs) for jobs in zip(*[e.histogram for e in ended], strict=True)]
    found = percentile(together, share)
    return None if found is None else found / MICRO


def minutes_of(by: By | None) -> int | None:
    """The length of a bucket."""
    if by is None:
        return None
    if not isinstance(by, str) or by not in UNITS:
        raise InvalidSetting(f"by= is one of {', '.join(UNITS)}, or None for one sum; not {by!r}")
    return UNITS[by]


def ended_jobs(records: list[RollupRecord], by: By | None) -> list[EndedJobs]:
    return [
        EndedJobs(
            None if by is None else to_datetime(record.minute * MINUTE),
            record.queue,
            record.task,
            record.outcome,
            record.ended,
            record.duration / MICRO,
            record.histogram,
        )
        for record in records
    ]
