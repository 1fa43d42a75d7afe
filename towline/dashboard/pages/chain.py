"""One chain: its jobs and their attempts over time, as a waterfall."""

from __future__ import annotations

from datetime import datetime

from ... import views
from ..page import Ask, Data, Page

MOST = 200  # jobs that are drawn


def view(ask: Ask) -> Data:
    app = ask.app
    chain = app.chain(ask.id)
    members = app.jobs(chain=ask.id, newest=False, limit=MOST)
    jobs = views.jobs_data(app, members)
    for data, job in zip(jobs, members, strict=True):
        data["attempts"] = views.attempts_data(app, job.id)
    now = views.time_text(app.now())
    return {
        "chain": views.chain_data(app, chain),
        "jobs": jobs,
        "cursor": members.cursor,
        "bars": waterfall(jobs, str(now)),
        "blockers": views.blockers_data(app, ask.id),
        "dependents": [views.dependent_data(found) for found in app.dependents(ask.id)],
        "now": now,
    }


def waterfall(jobs: list[Data], now: str) -> list[Data]:
    """Bars of a drawing 1000 wide: for each job when it waited and when its attempts ran."""
    first = min((_seconds(job["created_at"]) for job in jobs), default=_seconds(now))
    ended = [_seconds(job["ended_at"]) for job in jobs if job["ended_at"]]
    is_over = len(ended) == len(jobs)
    width = max((max(ended) if is_over else _seconds(now)) - first, 0.001)

    def place(start: str, end: str | None) -> Data:
        left = 1000 * (_seconds(start) - first) / width
        right = 1000 * (_seconds(end or now) - first) / width
        return {"x": round(left, 2), "width": round(max(right - left, 2.0), 2)}

    rows: list[Data] = []
    for job in jobs:
        attempts = [attempt for attempt in job["attempts"] if attempt["started_at"]]
        begun = attempts[0]["started_at"] if attempts else job["ended_at"]
        rows.append(
            {
                "job": job["id"],
                "task": job["task"],
                "waited": place(job["created_at"], begun),
                "attempts": [
                    {
                        **place(attempt["started_at"], attempt["ended_at"]),
                        "number": attempt["number"],
                        "outcome": attempt["outcome"] or "running",
                    }
                    for attempt in attempts
                ],
            }
        )
    return rows


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


PAGE = Page("chain", "/chains/{id:int}", "Chain", view, "A chain, its jobs and their attempts.")
