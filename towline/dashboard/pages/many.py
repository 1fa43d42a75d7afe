"""Before something is done to many jobs: how many that are, and which are passed over. Nothing is
changed here: the answer to the question is a form that does it."""

from __future__ import annotations

from starlette.exceptions import HTTPException

from ...app.filters import JobsWhere
from ...app.preview import preview
from ..page import FILTERS, Ask, Data, Page, Param, ids_of, way_back, where_of

# By the permission that each needs: what it is to the app, and what is done by it in the end.
ACTIONS = {"retry": "retry", "cancel": "cancel", "run": "run_now", "delete": "delete"}


def view(ask: Ask) -> Data:
    action = ask.text("action") or ""
    if action not in ACTIONS:
        raise HTTPException(400, f"action is one of {', '.join(ACTIONS)}")
    if action not in ask.viewer.may:
        raise HTTPException(403, f"you may not {action}")
    picked = ask.text("pick")
    if ask.text("all"):
        where = where_of(ask.query)
        given = {name: ask.text(name) for name in FILTERS if ask.text(name)}
    elif picked:
        where = JobsWhere(ids=ids_of(picked))
        given = {"ids": picked}
    else:
        where, given = JobsWhere(), {}
    found = preview(ask.app, ACTIONS[action], **where) if where else None
    return {
        "action": action,
        "given": given,  # what the action is to be given
        "changed": found.changed if found else 0,
        "skipped": found.skipped if found else 0,
        "chains": found.chains if found else 0,
        "complete": found.complete if found else True,
        "groups": [
            {
                "state": str(group.state),
                "task": group.task,
                "number": group.number,
                "skipped": group.skipped,
            }
            for group in (found.groups if found else ())
        ],
        "back": way_back(ask.text("back"), "/jobs"),
    }


PAGE = Page(
    "many",
    "/many",
    "Many jobs",
    view,
    "What an action on many jobs would do: how many of which states and tasks, what is skipped.",
    shows={
        "action": "text", "given": "object", "changed": "number", "skipped": "number",
        "chains": "number", "complete": "flag", "back": "text",
        "groups": [{"state": "text", "task": "text", "number": "number", "skipped": "text?"}],
    },
    params=(
        Param("action", f"One of {', '.join(ACTIONS)}.", "retry"),
        Param("pick", "Ids of jobs, with commas between them."),
        Param("all", "Not the picked ones, but all that fit the filters."),
        *(Param(name, text) for name, text in FILTERS.items()),
    ),
)  # fmt: skip
