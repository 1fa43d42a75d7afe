"""Tasks: how often each ran and failed, how long it waits and takes, how it is set; all of them, or
one by itself."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from ... import views
from ...app.rollups import EndedJobs
from ..heat import heat_data
from ..page import Ask, Data, Page, Param
from ..periods import PARAM, PERIODS, Period, period_of
from ..shapes import ENDED


def view(ask: Ask) -> Data:
    app = ask.app
    period = period_of(ask, "6h")
    chosen, queue = ask.text("task"), ask.text("queue")
    each, over = _ended(ask, period, chosen, queue)
    found: dict[str, list[EndedJobs]] = {}
    for jobs in each:
        if jobs.task not in app.built_in:
            found.setdefault(jobs.task, []).append(jobs)
    known = {name for name, task in app.registry.items() if queue in (None, task.queue)}
    steps = period.steps(over)
    task = app.registry.get(chosen) if chosen else None
    return {
        "range": period.name,
        "ranges": list(PERIODS),
        "task": chosen,
        "queue": queue,
        "settings": None if task is None else views.task_data(task),
        "tasks": [_line(ask, name, found.get(name, [])) for name in sorted({*found, *known})],
        "since": views.time_text(period.since),
        "until": views.time_text(period.until),
        "wait": heat_data(steps, lambda jobs: jobs.wait),
        "run": heat_data(steps, lambda jobs: jobs.run),
    }


def _ended(
    ask: Ask, period: Period, task: str | None, queue: str | None
) -> tuple[list[EndedJobs], list[EndedJobs]]:
    """What ended of each task; and over time, of all or one. Of long times both come from one read,
    by minute each task would be far too much."""
    app, since = ask.app, period.since
    if period.by == "minute":
        over = views.ended_over(app, period.by, since=since, task=task, queue=queue)
        return app.stats(since=since, queue=queue), over
    each = app.stats(by=period.by, since=since, queue=queue)
    return each, [jobs for jobs in each if task in (None, jobs.task)]


def _line(ask: Ask, name: str, ended: Sequence[EndedJobs]) -> Data:
    task = ask.app.registry.get(name)
    return {
        "name": name,
        "known": task is not None,
        "signature": None if task is None else task.signature.text.removeprefix(name),
        "description": None if task is None else inspect.getdoc(task),
        "queue": None if task is None else task.queue,
        "run_in": None if task is None else task.run_in,
        **views.ended_data(ended),
    }


PAGE = Page(
    "tasks",
    "/tasks",
    "Tasks",
    view,
    "Every task: counts, failure rate, wait and run times over a range and as heat maps, settings.",
    shows={
        "range": "text", "ranges": ["text"], "task": "text?", "queue": "text?",
        "settings": "task?",
        "tasks": [{
            "name": "text", "known": "flag", "signature": "text?", "description": "text?",
            "queue": "text?", "run_in": "text?", **ENDED,
        }],
        "since": "time", "until": "time", "wait": "heat", "run": "heat",
    },
    key="t",
    params=(
        PARAM,
        Param("task", "Heat maps and settings of this one."),
        Param("queue", "Only what ended in this queue."),
    ),
)  # fmt: skip
