"""How it goes: what waits and runs now, what ended over time, what fails, who works."""

from __future__ import annotations

from datetime import datetime, timedelta

from starlette.exceptions import HTTPException

from ... import views
from ...app.rollups import By, EndedJobs
from ...model import State
from ...times import to_datetime, to_micros
from ..page import Ask, Data, Page, Param

# How far back, and how long a bucket is: roll-ups are kept by minute for 2 days, by hour for 90.
RANGES: dict[str, tuple[timedelta, By]] = {
    "15m": (timedelta(minutes=15), "minute"),
    "1h": (timedelta(hours=1), "minute"),
    "6h": (timedelta(hours=6), "minute"),
    "24h": (timedelta(hours=24), "hour"),
    "7d": (timedelta(days=7), "hour"),
    "30d": (timedelta(days=30), "day"),
}
STEP = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
MICROSECOND = timedelta(microseconds=1)


def view(ask: Ask) -> Data:
    app = ask.app
    chosen = ask.text("range") or "1h"
    if chosen not in RANGES:
        raise HTTPException(400, f"range is one of {', '.join(RANGES)}, not {chosen[:40]!r}")
    span, by = RANGES[chosen]
    now = app.now()
    ended = app.stats(by=by, since=now - span)
    workers = app.workers()
    oldest = app.jobs(state=State.PENDING, newest=False, limit=1)
    return {
        "range": chosen,
        "ranges": list(RANGES),
        "by": by,
        "counts": views.counts_data(views.totals(app.counts())),
        "series": series(ended, by, now - span, now) if ended else [],
        "ended": views.ended_data(ended),
        **views.failures_data(app, since=now - span),
        "oldest": views.jobs_data(app, oldest)[0] if oldest else None,
        "workers": [views.worker_data(worker, now) for worker in workers],
        "slots": sum(worker.concurrency for worker in workers),
        "busy": sum(len(worker.running) for worker in workers),
        "now": views.time_text(now),
    }


def series(ended: list[EndedJobs], by: By, since: datetime, until: datetime) -> list[Data]:
    """A line for each bucket of the range, also for those in which nothing ended."""
    found: dict[datetime | None, list[EndedJobs]] = {}
    for jobs in ended:
        found.setdefault(jobs.start, []).append(jobs)
    lines: list[Data] = []
    step = STEP[by]
    at = to_datetime(to_micros(since) // (step // MICROSECOND) * (step // MICROSECOND))
    while at <= until:
        lines.append({"at": views.time_text(at), **views.ended_data(found.get(at, []))})
        at += step
    return lines


PAGE = Page(
    "overview",
    "/",
    "Overview",
    view,
    "Counts by state, ended jobs and run times over a range, failing tasks, workers.",
    key="o",
    params=(Param("range", f"How far back: {', '.join(RANGES)}."),),
)
