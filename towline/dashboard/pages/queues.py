"""Queues: how much waits in each and for how long, how fast it goes, which stand still."""

from __future__ import annotations

from datetime import timedelta

from ... import views
from ...app.rollups import EndedJobs
from ...model import State
from ..page import Ask, Data, Page

HOUR = timedelta(hours=1)


def view(ask: Ask) -> Data:
    app = ask.app
    now = app.now()
    counts, paused = app.counts(), views.paused_data(app)
    served = {queue for worker in app.workers() for queue in worker.queues}
    ended: dict[str, list[EndedJobs]] = {}
    for jobs in app.stats(since=now - HOUR):
        ended.setdefault(jobs.queue, []).append(jobs)
    lines: list[Data] = []
    for name in sorted({*counts, *paused, *served}):
        oldest = app.jobs(state=State.PENDING, queue=name, newest=False, limit=1)
        lines.append(
            {
                "name": name,
                **views.counts_data(counts.get(name, {})),
                "oldest": views.time_text(oldest[0].created_at) if oldest else None,
                "last_hour": views.ended_data(ended.get(name, [])),
                "paused": name in paused,
                **paused.get(name, {"paused_at": None, "paused_by": None}),
                "served": name in served,
            }
        )
    return {"queues": lines, "may_pause": "pause" in ask.viewer.may}


PAGE = Page("queues", "/queues", "Queues", view, "Every queue: depth, age, rate, paused.", key="q")
