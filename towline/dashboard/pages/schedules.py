"""Schedules: when each ticks, in words and in both zones, how its last runs ended; one of them with
its next ticks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import views
from ..page import Ask, Data, Page, Param
from ..shapes import SCHEDULE

if TYPE_CHECKING:
    from ...app import Towline
    from ...app.schedules import Schedule

RUNS = 12  # of each, the newest
LIMIT = 50


def view(ask: Ask) -> Data:
    app = ask.app
    name = ask.text("name")
    if name is not None:
        return {"schedules": [_line(app, app.schedule(name))], "cursor": None, "name": name}
    limit = ask.number("limit", LIMIT, 500)
    page = app.schedules(task=ask.text("task"), limit=limit, cursor=ask.text("cursor"))
    lines = [_line(app, schedule) for schedule in page]
    return {"schedules": lines, "cursor": page.cursor, "name": None}


def _line(app: Towline, schedule: Schedule) -> Data:
    runs = app.jobs(schedule=schedule.name, limit=RUNS)
    return {**views.schedule_data(app, schedule), "runs": views.jobs_data(app, reversed(runs))}


PAGE = Page(
    "schedules",
    "/schedules",
    "Schedules",
    view,
    "Every schedule: next tick, last runs, skipped and missed ticks.",
    key="s",
    shows={"schedules": [{**SCHEDULE, "runs": ["job"]}], "cursor": "text?", "name": "text?"},
    params=(
        Param("name", "The name of one schedule."),
        Param("task", "Of one task."),
        Param("limit", "How many at most, up to 500."),
        Param("cursor", "The cursor of the page before."),
    ),
)
