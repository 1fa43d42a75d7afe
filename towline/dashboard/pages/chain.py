"""One chain: its jobs and their attempts over time, as a waterfall."""

from __future__ import annotations

from ... import views
from ..page import Ask, Data, Page
from ..shapes import JOB
from ..timeline import timeline

MOST = 200  # jobs that are drawn


def view(ask: Ask) -> Data:
    app = ask.app
    chain = app.chain(ask.id)
    members = app.jobs(chain=ask.id, newest=False, limit=MOST)
    attempts = views.attempts_of(app, members)
    jobs = [{**job, "attempts": attempts[job["id"]]} for job in views.jobs_data(app, members)]
    return {
        "chain": views.chain_data(app, chain),
        "jobs": jobs,
        "cursor": members.cursor,
        "timeline": timeline(jobs, str(views.time_text(app.now()))),
        "blockers": views.blockers_data(app, ask.id),
        "dependents": [views.dependent_data(found) for found in app.dependents(ask.id)],
    }


PAGE = Page(
    "chain", "/chains/{id:int}", "Chain", view, "A chain, its jobs and their attempts.",
    shows={
        "chain": "chain", "jobs": [{**JOB, "attempts": ["attempt"]}], "cursor": "text?",
        "timeline": "timeline", "blockers": ["blocker"], "dependents": ["dependent"],
    },
)  # fmt: skip
