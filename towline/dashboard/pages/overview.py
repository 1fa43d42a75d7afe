"""How it goes: what waits and runs now, what ended over time, what fails, who works."""

from __future__ import annotations

from ... import views
from ...app.answers import living
from ...model import State
from ..page import Ask, Data, Page
from ..periods import PARAM, PERIODS, period_of
from ..shapes import ENDED


def view(ask: Ask) -> Data:
    app = ask.app
    period = period_of(ask, "1h")
    ended = views.ended_over(app, period.by, since=period.since)
    workers = living(app.workers(), period.until)
    oldest = app.jobs(state=State.PENDING, newest=False, limit=1)
    series = [
        {"at": views.time_text(step.at), **views.ended_data(step.ended)}
        for step in period.steps(ended)
    ]
    return {
        "range": period.name,
        "ranges": list(PERIODS),
        "by": period.by,
        "since": views.time_text(period.since),
        "counts": views.counts_data(views.totals(app.counts())),
        "series": series if ended else [],
        "ended": views.ended_data(ended),
        **views.failures_data(app, since=period.since),
        "oldest": views.jobs_data(app, oldest)[0] if oldest else None,
        "workers": [views.worker_data(worker, period.until) for worker in workers],
        "slots": sum(worker.concurrency for worker in workers),
        "busy": sum(worker.busy for worker in workers),
        "now": views.time_text(period.until),
    }


PAGE = Page(
    "overview",
    "/",
    "Overview",
    view,
    "Counts by state; ended jobs, wait and run times over a range; failing tasks, workers.",
    shows={
        "range": "text", "ranges": ["text"], "by": "text", "since": "time",
        "counts": "counts",
        "series": [{"at": "time", **ENDED}], "ended": "ended", "failures": ["failure"],
        "complete": "flag", "oldest": "job?", "workers": ["worker"], "slots": "number",
        "busy": "number", "now": "time",
    },
    key="o",
    params=(PARAM,),
)  # fmt: skip
