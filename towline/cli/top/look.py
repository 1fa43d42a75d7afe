"""One look at the whole, as the screen shows it: a handful of bounded reads."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ... import views
from ...app import Towline
from ...app.answers import WorkerInfo
from ...app.handles import Job
from ...model import END_STATE, State

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
MOST_RUNNING = 100


class Look(NamedTuple):
    """What there is at one moment; of the last hour, what ended and what failed by the minute."""

    now: datetime
    queues: dict[str, dict[str, int]]
    paused: list[str]
    workers: list[WorkerInfo]
    running: list[Job[Any]]
    ended: list[int]
    failed: list[int]
    failures: list[views.Data]


def look_at(app: Towline) -> Look:
    now = app.now()
    counts, paused = app.counts(), app.paused()
    ended, failed = by_minute(app, now)
    return Look(
        now,
        {queue: counts.get(queue, {}) for queue in sorted({*counts, *paused})},
        paused,
        app.workers(),
        list(app.jobs(state=State.RUNNING, newest=False, limit=MOST_RUNNING)),
        ended,
        failed,
        views.failures_data(app, since=now - HOUR)["failures"],
    )


def by_minute(app: Towline, now: datetime) -> tuple[list[int], list[int]]:
    """How many ended, and how many of them badly, in each minute of the last hour, oldest first."""
    first = (now - HOUR).replace(second=0, microsecond=0) + MINUTE
    ended, failed = [0] * 60, [0] * 60
    for jobs in app.stats(by="minute", since=first):
        assert jobs.start is not None
        minute = (jobs.start - first) // MINUTE
        if 0 <= minute < len(ended):
            ended[minute] += jobs.count
            failed[minute] += jobs.count * (END_STATE[jobs.outcome] is State.FAILED)
    return ended, failed
