"""Jobs by filter, a page at a time, and what can be done to many of them."""

from __future__ import annotations

from ... import views
from ...app.filters import JobsWhere
from ...errors import NotFound
from ...model import State
from ..page import FILTERS, Ask, Data, Page, Param, where_of

LIMIT, MOST = 50, 500


def view(ask: Ask) -> Data:
    app = ask.app
    limit = ask.number("limit", LIMIT, MOST)
    search = ask.text("q")
    if search is not None:
        return _answer(ask, *_searched(ask, search, limit), search)
    newest = ask.text("order") != "oldest"
    page = app.jobs(limit=limit, cursor=ask.text("cursor"), newest=newest, **where_of(ask.query))
    return _answer(ask, views.jobs_data(app, page), page.cursor, None)


def _searched(ask: Ask, search: str, limit: int) -> tuple[list[Data], str | None]:
    """The first of these that finds something: an id, a key, a label, a task."""
    app = ask.app
    if search.isdecimal() and len(search) < 19:
        try:
            return views.jobs_data(app, [app.job(int(search))]), None
        except NotFound:
            pass
    for where in (JobsWhere(key=search), JobsWhere(label=search), JobsWhere(task=search)):
        page = app.jobs(limit=limit, **where)
        if page:
            return views.jobs_data(app, page), page.cursor
    return [], None


def _answer(ask: Ask, jobs: list[Data], cursor: str | None, search: str | None) -> Data:
    return {
        "jobs": jobs,
        "cursor": cursor,
        "search": search,
        "where": {name: ask.text(name) for name in FILTERS},
        "states": [str(state) for state in State],
        "order": ask.text("order") or "newest",
    }


PAGE = Page(
    "jobs",
    "/jobs",
    "Jobs",
    view,
    "A page of jobs that fit every filter; `cursor` of the answer asks for what follows.",
    shows={
        "jobs": ["job"], "cursor": "text?", "search": "text?",
        "where": dict.fromkeys(FILTERS, "text?"), "states": ["text"], "order": "text",
    },
    key="j",
    params=(
        Param("q", "An id, a key, a label or a task."),
        *(Param(name, text) for name, text in FILTERS.items()),
        Param("order", "newest (the default) or oldest."),
        Param("cursor", "Go on after an earlier page."),
        Param("limit", f"How many, {LIMIT} if not said, at most {MOST}."),
    ),
)  # fmt: skip
