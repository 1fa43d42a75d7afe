"""Lanes of a queue: what waits and runs in each, who is next, which are full or rest."""

from __future__ import annotations

from ... import views
from ..page import Ask, Data, Page, Param

SHOWN = 100  # lanes on a page


def view(ask: Ask) -> Data:
    queue = ask.text("queue") or "default"
    page = ask.app.lanes(queue, limit=SHOWN, cursor=ask.text("cursor"))
    return {
        "queue": queue,
        "limits": views.limits_data(ask.app.limits(queue)),
        "lanes": views.lanes_data(page),
        "cursor": page.cursor,
        "may_limit": "limit" in ask.viewer.may,
    }


PAGE = Page(
    "lanes", "/lanes", "Lanes", view, "The lanes of a queue: waiting, running, closed until.",
    params=(
        Param("queue", "The name of a queue.", "default"),
        Param("cursor", "The cursor of the page before."),
    ),
    shows={
        "queue": "text", "limits": ["limit"], "lanes": ["lane"], "cursor": "text?",
        "may_limit": "flag",
    },
)  # fmt: skip
