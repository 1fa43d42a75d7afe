"""Tasks: how often each ran and failed in a day, how long it takes, how it is set."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from datetime import timedelta

from ... import views
from ...app.rollups import EndedJobs
from ..page import Ask, Data, Page

DAY = timedelta(days=1)


def view(ask: Ask) -> Data:
    app = ask.app
    found: dict[str, list[EndedJobs]] = {}
    for jobs in app.stats(since=app.now() - DAY):
        found.setdefault(jobs.task, []).append(jobs)
    return {
        "tasks": [_line(ask, name, found.get(name, ())) for name in sorted({*found, *app.registry})]
    }


def _line(ask: Ask, name: str, ended: Iterable[EndedJobs]) -> Data:
    task = ask.app.registry.get(name)
    known = list(ended)
    histogram = [sum(jobs) for jobs in zip(*(e.histogram for e in known), strict=True)]
    return {
        "name": name,
        "known": task is not None,
        "signature": None if task is None else str(inspect.signature(task.function)),
        "description": None if task is None else inspect.getdoc(task),
        "queue": None if task is None else task.queue,
        "run_in": None if task is None else task.run_in,
        "histogram": histogram,
        **views.ended_data(known),
    }


PAGE = Page(
    "tasks",
    "/tasks",
    "Tasks",
    view,
    "Every task: counts and run times of a day, settings.",
    key="t",
)
