"""One group: how many of its members have ended, those that failed first."""

from __future__ import annotations

from ... import views
from ..page import Ask, Data, Page

MOST = 100  # members that are shown


def view(ask: Ask) -> Data:
    group = ask.app.group(ask.id)
    data = views.group_data(ask.app, group, MOST)
    unfinished = group.state.open or group.ended < group.total
    return {"group": data, "can_cancel": unfinished and "cancel" in ask.viewer.may}


PAGE = Page(
    "group",
    "/groups/{id:int}",
    "Group",
    view,
    "A group by the id of the job behind its members.",
    shows={"group": "group", "can_cancel": "flag"},
)
