"""What can be done from the dashboard: each has its permission, each leaves a line in the log, and
in the audit of the job or queue by whom."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.exceptions import HTTPException

from ..access import Permission, Viewer
from ..app.filters import JobsWhere
from ..app.schedules import Schedule
from ..app.shown import output_of, stored
from ..errors import TowlineError
from ..model import ChainState
from ..text import plain
from .page import FILTERS, Data, number_of, refusal, where_of

if TYPE_CHECKING:
    from ..app import Towline  # noqa: TC004 (msgspec never looks at the types)

log = logging.getLogger("towline.dashboard")

Given = Mapping[str, str]
DELETED_AT_ONCE = 200
YES_NO = {"true": True, "1": True, "false": False, "0": False}
# What of an answer stands in the log.
TOLD = ("id", "chain", "queue", "schedule", "done", "preview")


class Action(Struct, frozen=True):
    """Something that can be done: who may, and how it is done."""

    permission: Permission
    do: Callable[[Towline, Given, str], Data]
    text: str
    takes: tuple[str, ...]  # for the description of the API


def do(app: Towline, name: str, given: Given, viewer: Viewer) -> Data:
    """Do it if the viewer may, and say in the log who did what to how many."""
    action = ACTIONS.get(name)
    if action is None:
        raise HTTPException(404, f"there is no action {name[:40]!r}: {', '.join(ACTIONS)}")
    if action.permission not in viewer.may:
        raise HTTPException(403, f"you may not {action.permission}")
    _check_taken(name, action, given)
    try:
        done = action.do(app, given, viewer.name)
    except TowlineError as error:
        raise refusal(error) from None
    told = {key: plain(str(done[key]), lines=False)[:200] for key in TOLD if key in done}
    log.info("%s: %s by %s", name, told, plain(viewer.name, lines=False))
    return done


def _check_taken(name: str, action: Action, given: Given) -> None:
    """Refuse what the action would pass over: a filter that is mistyped would mean more jobs, and a
    number that is, no limit."""
    # What the forms of the pages send beside: the way back, and what the page that asks is told.
    beside = {"back": given.get("back"), "pick": given.get("id"), "action": name}
    for each, value in given.items():
        if each not in action.takes and beside.get(each) != value:
            taken = ", ".join(action.takes)
            raise HTTPException(400, f"{name} takes no {each[:40]!r}: it takes {taken}")


def _id(given: Given) -> int:
    return number_of(given.get("id", ""), "id")


def _queue(given: Given) -> str:
    if not (queue := given.get("queue")):
        raise HTTPException(400, "queue is the name of a queue")
    return queue


def _retry(app: Towline, given: Given, by: str) -> Data:
    return {"id": app.retry(_id(given), by=by).id, "done": 1}


def _cancel(app: Towline, given: Given, by: str) -> Data:
    reason = given.get("reason") or "cancelled in the dashboard"
    return {"id": app.cancel(_id(given), reason=reason, by=by).id, "done": 1}


def _cancel_group(app: Towline, given: Given, by: str) -> Data:
    reason = given.get("reason") or "cancelled in the dashboard"
    group = app.group(_id(given))
    before = group.ended
    return {"id": group.id, "done": group.cancel(reason, by=by).ended - before}


def _run(app: Towline, given: Given, by: str) -> Data:
    return {"id": app.run_now(_id(given), by=by).id, "done": 1}


def _delete(app: Towline, given: Given, by: str) -> Data:
    chain = app.job(_id(given)).chain_id
    app.delete(chain, by=by)
    return {"chain": chain, "done": 1}


def _pause(app: Towline, given: Given, by: str) -> Data:
    app.pause(_queue(given), by=by)
    return {"queue": _queue(given), "done": 1}


def _resume(app: Towline, given: Given, by: str) -> Data:
    app.resume(_queue(given), by=by)
    return {"queue": _queue(given), "done": 1}


def _schedule(app: Towline, given: Given) -> Schedule:
    if not (name := given.get("schedule")):
        raise HTTPException(400, "schedule is the name of a schedule")
    return app.schedule(name)


def _pause_schedule(app: Towline, given: Given, by: str) -> Data:
    return {"schedule": _schedule(app, given).pause(by=by).name, "done": 1}


def _resume_schedule(app: Towline, given: Given, by: str) -> Data:
    return {"schedule": _schedule(app, given).resume(by=by).name, "done": 1}


def _run_schedule(app: Towline, given: Given, by: str) -> Data:
    schedule = _schedule(app, given)
    return {"schedule": schedule.name, "id": schedule.run(by=by).id, "done": 1}


def _delete_schedule(app: Towline, given: Given, by: str) -> Data:
    schedule = _schedule(app, given)
    schedule.delete(by=by)
    return {"schedule": schedule.name, "done": 1}


def _limit(app: Towline, given: Given, by: str) -> Data:
    """Empty fields are numbers that are not said."""
    numbers = {
        name: number_of(given[name], name) for name in ("concurrency", "rate") if given.get(name)
    }
    try:
        per = float(given.get("per") or 60)
    except ValueError:
        raise HTTPException(400, "per is a number of seconds") from None
    lane = given.get("lane") or None
    app.set_limit(_queue(given), lane=lane, per=per, by=by, **numbers)
    return {"queue": _queue(given), "done": 1}


def _where(given: Given) -> JobsWhere:
    if not (found := where_of(given)):
        raise HTTPException(400, f"which jobs? At least one of {', '.join(FILTERS)}")
    return found


def _reveal(app: Towline, given: Given, by: str) -> Data:
    job = app.job(_id(given))
    app.runner.run(app.runner.store.note(job.id, "reveal", by))
    return {
        "id": job.id,
        "arguments": stored(job.arguments),
        "output": stored(output_of(job)),
        "errors": [attempt.error for attempt in app.attempts(job.id)],
        "done": 1,
    }


def _is_preview(given: Given) -> bool:
    """What is not understood is refused: taken for a no, it would be done."""
    said = given.get("preview", "false").lower()
    if said not in YES_NO:
        raise HTTPException(400, f"preview is true or false, not {said[:40]!r}")
    return YES_NO[said]


def _retry_many(app: Towline, given: Given, by: str) -> Data:
    preview = _is_preview(given)
    done = app.retry_many(preview=preview, by=by, **_where(given))
    return {"done": int(done), "preview": preview}


def _cancel_many(app: Towline, given: Given, by: str) -> Data:
    preview = _is_preview(given)
    done = app.cancel_many(preview=preview, by=by, **_where(given))
    return {"done": int(done), "preview": preview}


def _run_many(app: Towline, given: Given, by: str) -> Data:
    preview = _is_preview(given)
    done = app.run_now_many(preview=preview, by=by, **_where(given))
    return {"done": int(done), "preview": preview}


def _delete_many(app: Towline, given: Given, by: str) -> Data:
    """The chains of all jobs that fit, page by page: whatever state they are in, it was chosen."""
    preview = _is_preview(given)
    number, cursor = 0, None
    while True:
        page = app.jobs(limit=DELETED_AT_ONCE, cursor=cursor, **_where(given))
        if chains := {job.chain_id for job in page}:
            number += app.delete_many(ids=chains, state=[*ChainState], preview=preview, by=by)
        if (cursor := page.cursor) is None:
            return {"done": number, "preview": preview}


MANY = (*FILTERS, "preview")
ACTIONS: dict[str, Action] = {
    "retry": Action("retry", _retry, "Make a failed or cancelled job pending again.", ("id",)),
    "cancel": Action("cancel", _cancel, "End an open job as cancelled.", ("id", "reason")),
    "cancel_group": Action(
        "cancel", _cancel_group, "Cancel a group: its last job, then its members.", ("id", "reason")
    ),
    "run": Action("run", _run, "Make a scheduled job pending at once.", ("id",)),
    "delete": Action("delete", _delete, "Delete a job's chain with all its history.", ("id",)),
    "pause": Action("pause", _pause, "Stop claims from a queue.", ("queue",)),
    "resume": Action("pause", _resume, "Let workers claim from a queue again.", ("queue",)),
    "pause_schedule": Action(
        "pause", _pause_schedule, "Let no tick of a schedule give a job.", ("schedule",)
    ),
    "resume_schedule": Action(
        "pause", _resume_schedule, "Go on with a schedule's next tick after now.", ("schedule",)
    ),
    "run_schedule": Action(
        "run", _run_schedule, "Store a job of a schedule at once.", ("schedule",)
    ),
    "delete_schedule": Action(
        "delete", _delete_schedule, "Delete a schedule made at run time.", ("schedule",)
    ),
    "limit": Action(
        "limit",
        _limit,
        "Limit a queue, each of its lanes (*) or one; no number: no limit.",
        ("queue", "lane", "concurrency", "rate", "per"),
    ),
    "reveal": Action(
        "reveal", _reveal, "Show a job's arguments, output and errors with their secrets.", ("id",)
    ),
    "retry_many": Action("retry", _retry_many, "Retry all jobs that fit.", MANY),
    "cancel_many": Action("cancel", _cancel_many, "Cancel all jobs that fit.", MANY),
    "run_many": Action("run", _run_many, "Make all scheduled jobs that fit pending.", MANY),
    "delete_many": Action("delete", _delete_many, "Delete the chains of all jobs that fit.", MANY),
}
