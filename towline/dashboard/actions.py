"""What can be done from the dashboard: each has its permission, each leaves a line in the log.

Who did it is recorded in the history of the job or queue, too, where that has a place for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.exceptions import HTTPException

from .. import views
from ..app.filters import JobsWhere
from ..errors import TowlineError
from ..text import plain
from .access import Permission, Viewer
from .page import FILTERS, Data, number_of, refusal, where_of

if TYPE_CHECKING:
    from ..app import Towline  # noqa: TC004 (msgspec never looks at the types)

log = logging.getLogger("towline.dashboard")

Given = Mapping[str, str]
TOLD = ("id", "chain", "queue", "done", "preview")  # what of an answer stands in the log


class Action(Struct, frozen=True):
    """Something that can be done: who may, and how it is done."""

    permission: Permission
    do: Callable[[Towline, Given, str], Data]
    text: str


def do(app: Towline, name: str, given: Given, viewer: Viewer) -> Data:
    """Do it if the viewer may, and say in the log who did what to how many."""
    action = ACTIONS.get(name)
    if action is None:
        raise HTTPException(404, f"there is no action {name[:40]!r}: {', '.join(ACTIONS)}")
    if action.permission not in viewer.may:
        raise HTTPException(403, f"you may not {action.permission}")
    try:
        done = action.do(app, given, viewer.name)
    except TowlineError as error:
        raise refusal(error) from None
    told = {key: plain(str(done[key]), lines=False)[:200] for key in TOLD if key in done}
    log.info("%s: %s by %s", name, told, plain(viewer.name, lines=False))
    return done


def _id(given: Given) -> int:
    return number_of(given.get("id", ""), "id")


def _queue(given: Given) -> str:
    if not (queue := given.get("queue")):
        raise HTTPException(400, "queue is the name of a queue")
    return queue


def _retry(app: Towline, given: Given, by: str) -> Data:
    return {"id": app.retry(_id(given)).id, "done": 1}


def _cancel(app: Towline, given: Given, by: str) -> Data:
    reason = given.get("reason") or "cancelled in the dashboard"
    return {"id": app.cancel(_id(given), reason=reason, by=by).id, "done": 1}


def _run(app: Towline, given: Given, by: str) -> Data:
    return {"id": app.run_now(_id(given)).id, "done": 1}


def _delete(app: Towline, given: Given, by: str) -> Data:
    chain = app.job(_id(given)).chain_id
    app.delete(chain)
    return {"chain": chain, "done": 1}


def _pause(app: Towline, given: Given, by: str) -> Data:
    app.pause(_queue(given), by=by)
    return {"queue": _queue(given), "done": 1}


def _resume(app: Towline, given: Given, by: str) -> Data:
    app.resume(_queue(given))
    return {"queue": _queue(given), "done": 1}


def _where(given: Given) -> JobsWhere:
    if not (found := where_of(given)):
        raise HTTPException(400, f"which jobs? At least one of {', '.join(FILTERS)}")
    return found


def _reveal(app: Towline, given: Given, by: str) -> Data:
    job = app.job(_id(given))
    return {
        "id": job.id,
        "arguments": views.stored(job.arguments),
        "output": views.stored(views.output_of(job)),
        "done": 1,
    }


def _is_preview(given: Given) -> bool:
    return given.get("preview", "").lower() in ("1", "true")


def _retry_many(app: Towline, given: Given, by: str) -> Data:
    preview = _is_preview(given)
    return {"done": int(app.retry_many(preview=preview, **_where(given))), "preview": preview}


def _cancel_many(app: Towline, given: Given, by: str) -> Data:
    preview = _is_preview(given)
    return {
        "done": int(app.cancel_many(preview=preview, by=by, **_where(given))),
        "preview": preview,
    }


ACTIONS: dict[str, Action] = {
    "retry": Action("retry", _retry, "Make a failed or cancelled job pending again."),
    "cancel": Action("cancel", _cancel, "End an open job as cancelled."),
    "run": Action("run", _run, "Make a scheduled job pending at once."),
    "delete": Action("delete", _delete, "Delete a job's chain with all its history."),
    "pause": Action("pause", _pause, "Stop claims from a queue."),
    "resume": Action("pause", _resume, "Let workers claim from a queue again."),
    "reveal": Action("reveal", _reveal, "Show a job's arguments and output with their secrets."),
    "retry_many": Action("retry", _retry_many, "Retry all jobs that fit; preview counts them."),
    "cancel_many": Action("cancel", _cancel_many, "Cancel all jobs that fit; preview counts them."),
}
