"""Workers: where each runs, what it holds, when it was last heard of."""

from __future__ import annotations

from ... import views
from ..page import Ask, Data, Page
from ..shapes import WORKER

MOST_JOBS = 20  # of one worker that are named


def view(ask: Ask) -> Data:
    app = ask.app
    now = app.now()
    return {
        "workers": [
            {**views.worker_data(worker, now), "jobs": list(worker.running[:MOST_JOBS])}
            for worker in app.workers()
        ]
    }


PAGE = Page(
    "workers",
    "/workers",
    "Workers",
    view,
    "Every worker: host, slots, jobs.",
    shows={"workers": [{**WORKER, "jobs": ["id"]}]},
    key="w",
)
