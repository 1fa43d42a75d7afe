"""Ended jobs over time, as callers see them: how many, how long they ran, and waited before."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct

from ..errors import InvalidSetting
from ..model import Outcome
from ..store.columns import BUCKETS
from ..store.ground import MINUTE
from ..store.retention import DAY, HOUR
from ..store.stats import RollupRecord, percentile
from ..times import MICRO, to_datetime

By = Literal["minute", "hour", "day"]
UNITS = {"minute": 1, "hour": HOUR, "day": DAY}  # in minutes
BOUNDS = tuple(bound / MICRO for bound in BUCKETS)  # of a histogram, in seconds


class Times(Struct, frozen=True):
    """How long jobs took over something: all of them together in seconds, and by magnitude.

    The histogram says how many took less than 1 ms, 10 ms, 100 ms, 1 s, 10 s, 100 s, 1000 s, and
    longer. Percentiles are estimated from it: seconds that this share stayed below, None when
    there are none.
    """

    total: float
    histogram: tuple[int, ...]

    @property
    def p50(self) -> float | None:
        return self._percentile(0.5)

    @property
    def p95(self) -> float | None:
        return self._percentile(0.95)

    @property
    def p99(self) -> float | None:
        return self._percentile(0.99)

    def _percentile(self, share: float) -> float | None:
        found = percentile(self.histogram, share, round(self.total * MICRO))
        return None if found is None else found / MICRO


class EndedJobs(Struct, frozen=True):
    """Jobs of one queue and task that ended with one outcome, in a bucket of time.

    `start` is the bucket's beginning, None when it is all of the time that was asked for. Of the
    `count` some may not have run: they have no part in `run`, how long the others ran, nor in
    `wait`, how long those waited until they began: from when on they were due, no longer blocked,
    and back from the attempt before. Both are of a job's last attempt.
    """

    start: datetime | None
    queue: str
    task: str
    outcome: Outcome
    count: int
    run: Times
    wait: Times


def together(times: Iterable[Times]) -> Times:
    found = list(times)
    histogram = tuple(sum(jobs) for jobs in zip(*[each.histogram for each in found], strict=True))
    return Times(sum(each.total for each in found), histogram)


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
            Times(record.duration / MICRO, record.histogram),
            Times(record.waited / MICRO, record.wait_histogram),
        )
        for record in records
    ]
