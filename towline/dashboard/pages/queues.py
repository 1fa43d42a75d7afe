"""Queues: how much waits in each and for how long, how fast it goes, which stand still."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ... import views
from ...app.answers import living
from ...app.limits import Limit
from ...app.rollups import EndedJobs
from ...model import State
from ...naming import EVERY
from ..page import Ask, Data, Page
from ..periods import STEP, begin_of
from ..shapes import COUNTS

if TYPE_CHECKING:
    from ...app import Towline

HOUR = timedelta(hours=1)
LINES = 5  # of what people did to a queue


def view(ask: Ask) -> Data:
    app = ask.app
    now = app.now()
    counts, paused = app.counts(), views.paused_data(app)
    workers = living(app.workers(), now)
    words = {word for worker in workers for word in worker.queues}
    named = {word for word in words if word != EVERY and not word.startswith("-")}
    limits: dict[str, list[Limit]] = {}
    for limit in app.limits():
        limits.setdefault(limit.queue, []).append(limit)
    ended: dict[str, list[EndedJobs]] = {}
    since = begin_of(now - HOUR, STEP["minute"])
    for jobs in app.stats(since=since):
        ended.setdefault(jobs.queue, []).append(jobs)
    lines = [
        {
            "name": name,
            **views.counts_data(counts.get(name, {})),
            "oldest": _oldest(app, name),
            "last_hour": views.ended_data(ended.get(name, [])),
            "paused": not paused.keys().isdisjoint({name, EVERY}),
            **(paused.get(name) or paused.get(EVERY) or {"paused_at": None, "paused_by": None}),
            "served": any(worker.serves(name) for worker in workers),
            "limit": _own(limits.get(name, [])),
            "limits": len(limits.get(name, [])),
            "audit": views.audit_data(app.audit(queue=name, limit=LINES)),
        }
        for name in sorted({*counts, *paused, *named, *limits})
    ]
    may_pause = "pause" in ask.viewer.may
    return {"queues": lines, "since": views.time_text(since), "may_pause": may_pause}


def _own(limits: list[Limit]) -> Data | None:
    """The limit of the queue itself."""
    return next(iter(views.limits_data(limit for limit in limits if limit.lane is None)), None)


def _oldest(app: Towline, queue: str) -> Data | None:
    """The pending job that was stored first. A queue that another hand stored may have a name
    that is refused: it is shown, but cannot be asked for."""
    if not queue.isprintable():
        return None
    found = app.jobs(state=State.PENDING, queue=queue, newest=False, limit=1)
    if not found:
        return None
    job = found[0]
    return {"id": job.id, "task": job.task, "created_at": views.time_text(job.created_at)}


PAGE = Page(
    "queues", "/queues", "Queues", view, "Every queue: depth, age, rate, paused.",
    shows={
        "queues": [{
            "name": "text", **COUNTS, "oldest": "oldest?", "last_hour": "ended", "paused": "flag",
            "paused_at": "time?", "paused_by": "text?", "served": "flag", "limit": "limit?",
            "limits": "number", "audit": ["audit_line"],
        }],
        "since": "time", "may_pause": "flag",
    }, key="q",
)  # fmt: skip
