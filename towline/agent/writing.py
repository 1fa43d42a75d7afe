"""The tools that change something. Each is one operation: the limit of writes, the work, its line
in the history with the client's name, and a look at the task that was met; all of it commits, or
nothing does."""

from __future__ import annotations

import logging
from threading import Lock
from typing import Annotated, Any, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from ..app.handles import Job
from ..model import Live
from ..naming import check_name, check_pausable
from ..operation import Op, Steps
from ..records import Enqueued, JobRecord, NewJob
from ..store import audit
from ..store.control import BULK
from ..store.listing import ChainFilter
from ..task.batch import new_jobs
from ..text import plain
from ..times import MICRO
from .reading import Id, OneJob, Where, id_of, job_data, where_of
from .texts import named
from .tool import Data, Desk, Refused, Tool

T = TypeVar("T")

log = logging.getLogger("towline.agent")

CLIENTS = "mcp:"  # how the names of clients begin in the history
WRITES, MINUTE = 30, 60 * MICRO
MOST_MANY = 1000  # jobs of one call on many
PAGE, PAGES = 500, 20  # looked at for it
NAMED = 10  # ids that a preview names
LINES = 200  # of the history, read at once
_ONE = Lock()  # writes of this process go one by one: each counts those before it


class Enqueue(Struct, forbid_unknown_fields=True):
    task: str
    request_id: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=100,
            description="new for each job, the same when repeating: a repetition stores nothing",
        ),
    ]
    arguments: dict[str, Any] = {}
    delay: Annotated[float, Meta(ge=0, description="seconds")] = 0
    after: Annotated[list[Id], Meta(description="jobs to wait for", max_length=100)] = []


class OneQueue(Struct, forbid_unknown_fields=True):
    queue: str


class Many(Struct, forbid_unknown_fields=True):
    filter: Where
    confirm: Annotated[str, Meta(description="token of the preview")] | UnsetType = UNSET


# ---- what every write does


def write(desk: Desk, op: Op[T]) -> T:
    """Run it in one transaction, if the limit and the rules let it. Events tell of it as they would
    of the operation itself: its name, who asked for it, which queue it is about."""

    def guarded() -> Steps[T]:
        yield from _check_limit(desk)
        answer = yield from op
        for record in _records(answer):
            # Looked at afterwards: it is the job that was changed, whatever a chain did meanwhile.
            if not desk.rules.covers(record.task):
                task = named(record.task)
                raise Refused(f"job {record.id} is of task {task}, which you may not change")
        return answer

    with _ONE:
        return desk.app.runner.run(Op(op.name, guarded, loss=op.loss, by=op.by, queue=op.queue))


def _records(answer: object) -> list[JobRecord]:
    if isinstance(answer, JobRecord):
        return [answer]
    return [each.record for each in answer] if isinstance(answer, list) else []


def _check_limit(desk: Desk) -> Steps[None]:
    """The history knows what all clients did within the last minute: who comes back, or under
    another name, has no more."""
    store = desk.app.runner.store
    since = (yield from store.now()) - MINUTE
    number, cursor = 0, None
    while True:
        page = yield from store.audit(None, None, LINES, cursor)
        recent = [line for line in page.records if line.at > since]
        number += sum(line.done_by.startswith(CLIENTS) for line in recent)
        if number >= WRITES:
            raise Refused(f"agents may write {WRITES} times a minute: wait, then go on")
        if len(recent) < len(page.records) or (cursor := page.cursor) is None:
            return


def _tell(desk: Desk, name: str, **what: object) -> None:
    said = " ".join(f"{key}={plain(str(value), lines=False)}" for key, value in what.items())
    log.info("%s: %s by %s", name, said, plain(desk.caller.name, lines=False))


# ---- one job


def enqueue(desk: Desk, asked: Enqueue) -> Data:
    app = desk.app
    task = app.registry.get(asked.task)
    if task is None or not desk.rules.covers(asked.task):
        raise Refused(f"there is no task {asked.task[:40]!r} that you may enqueue: see list_tasks")
    args, kwargs = task.signature.read((), asked.arguments)
    key = check_name(f"{CLIENTS}{asked.request_id}", "request_id")
    call = task.using(
        key=key, scope="any", delay=asked.delay or None, after=[id_of(id) for id in asked.after]
    ).call(*args, **kwargs)
    (new,) = new_jobs([call])
    ((record, created),) = _stored(desk, new, Op("enqueue", _enqueue, desk, asked, key, new))
    if created:
        _tell(desk, "enqueue", job=record.id, task=record.task)
    return {**job_data(Job(app, record)), "created": created}


def _stored(desk: Desk, new: NewJob, op: Op[list[Enqueued]]) -> list[Enqueued]:
    """As the app stores what it enqueues itself: below a span, where it has a tracer."""
    tracing = desk.app.tracing
    if tracing is None:
        return write(desk, op)
    with tracing.enqueuing([new]) as told:
        answers = write(desk, op)
        told.stored(answers)
        return answers


def _enqueue(desk: Desk, asked: Enqueue, key: str, new: NewJob) -> Steps[list[Enqueued]]:
    """The job of a request: a new one, or the one that the same request has stored before."""
    store = desk.app.runner.store
    yield from store.hold_key(key)
    (answer,) = yield from store.enqueue([new])
    if answer.created:
        # A key belongs to a task: of another one it may stand for this request already.
        found = yield from store.chains(ChainFilter(key=key), 2, newest=False)
        for chain in found.records:
            if chain.task != new.task:
                raise _used(asked, chain.id, "of another task")
        yield from audit.note(store, desk.caller.name, "enqueue", job_id=answer.record.id)
        return [answer]
    # The answer is the last job of that chain, which may have gone on; the request made the first.
    first = yield from store.job(answer.record.chain_id)
    if first.arguments != new.arguments:
        raise _used(asked, first.id, "with other arguments")
    return [Enqueued(first, created=False)]


def _used(asked: Enqueue, job_id: int, how: str) -> Refused:
    return Refused(
        f"request_id {named(asked.request_id)!r} was used for job {job_id}, {how}: "
        "nothing was stored; take a new one"
    )


def retry_job(desk: Desk, asked: OneJob) -> Data:
    return _change(desk, desk.app.runner.store.retry(id_of(asked.id), desk.caller.name))


def cancel_job(desk: Desk, asked: OneJob) -> Data:
    store, by = desk.app.runner.store, desk.caller.name
    return _change(desk, store.cancel(id_of(asked.id), "cancelled by an agent", by))


def run_job(desk: Desk, asked: OneJob) -> Data:
    id = id_of(asked.id)
    job = desk.app.job(id)
    record = job.record
    if record.live_state == Live.PENDING or record.parked_for is not None:
        return job_data(job)  # as it is to be
    return _change(desk, desk.app.runner.store.run_now(id, desk.caller.name))


def _change(desk: Desk, op: Op[JobRecord]) -> Data:
    record = write(desk, op)
    _tell(desk, op.name, job=record.id, task=record.task)
    return job_data(Job(desk.app, record))


# ---- queues


def pause_queue(desk: Desk, asked: OneQueue) -> Data:
    return _switch(desk, asked.queue, paused=True)


def resume_queue(desk: Desk, asked: OneQueue) -> Data:
    return _switch(desk, asked.queue, paused=False)


def _switch(desk: Desk, queue: str, *, paused: bool) -> Data:
    check_name(queue, "queue")
    if paused:
        check_pausable(queue)
    store = desk.app.runner.store
    if (queue in desk.app.paused()) != paused:
        op = (store.pause if paused else store.resume)(queue, desk.caller.name)
        write(desk, op)
        _tell(desk, op.name, queue=queue)
    return {"queue": named(queue), "paused": paused}


# ---- many jobs


def preview_of(desk: Desk, action: str, asked: Many) -> Data:
    """How many it would be, some of them, and the token that does it to exactly those."""
    where = where_of(asked.filter)
    if not where:
        raise Refused("which jobs? Say at least one of state, task, queue, since")
    states = BULK[action]
    if "state" in where and where["state"] not in states:
        raise Refused(f"no job that is {where['state']} can be changed by {action}")
    where.setdefault("state", [*states])
    ids: list[int] = []
    cursor = None
    for _ in range(PAGES):
        page = desk.app.jobs(limit=PAGE, cursor=cursor, **where)
        ids += [job.id for job in page if desk.rules.covers(job.task)]
        if (cursor := page.cursor) is None or len(ids) > MOST_MANY:
            break
    if cursor is not None or len(ids) > MOST_MANY:
        raise Refused(f"these are more than {MOST_MANY:,} jobs: narrow the filter")
    token = desk.previews.keep(action, to_builtins(asked.filter), ids)
    return {
        "would_change": len(ids),
        "ids": [str(id) for id in ids[:NAMED]],
        "confirm": token,
        "note": "nothing is done yet; the same call with confirm does it, within 5 minutes",
    }


def change_many(desk: Desk, action: str, asked: Many) -> Data:
    if asked.confirm is UNSET:
        return preview_of(desk, action, asked)
    with _ONE:
        desk.app.runner.run(Op("limit", lambda: _check_limit(desk), reads=True))
        found = desk.previews.take(asked.confirm, action, to_builtins(asked.filter))
        if found is None:
            raise Refused("this token is used, too old, or of another call: ask for a new preview")
        if not found.ids:
            return {"changed": 0}
        do = desk.app.retry_many if action == "retry" else desk.app.cancel_many
        number = do(ids=found.ids, by=desk.caller.name)
    _tell(desk, f"{action}_many", jobs=number)
    return {"changed": number}


def retry_jobs(desk: Desk, asked: Many) -> Data:
    return change_many(desk, "retry", asked)


def cancel_jobs(desk: Desk, asked: Many) -> Data:
    return change_many(desk, "cancel", asked)


WRITING = (
    Tool("enqueue", "Store a job of a task; list_tasks tells its arguments.", Enqueue, enqueue,
         "enqueue", reaches_out=True),
    Tool("retry_job", "Make a failed or cancelled job pending again.", OneJob, retry_job, "retry",
         reaches_out=True),
    Tool("run_job", "Make a scheduled job pending at once.", OneJob, run_job, "run"),
    Tool("cancel_job", "End an open job as cancelled.", OneJob, cancel_job, "cancel",
         destroys=True),
    Tool("pause_queue", "Stop work on a queue, for all workers; * is every queue.", OneQueue,
         pause_queue, "pause", destroys=True),
    Tool("resume_queue", "Let workers take jobs of a paused queue again.", OneQueue, resume_queue,
         "pause"),
    Tool("retry_jobs", "Retry all failed or cancelled jobs that fit. First without confirm: a "
         "preview.", Many, retry_jobs, "retry", destroys=True, repeatable=False, reaches_out=True,
         asks=True),
    Tool("cancel_jobs", "Cancel all open jobs that fit. First without confirm: a preview.", Many,
         cancel_jobs, "cancel", destroys=True, repeatable=False, asks=True),
)  # fmt: skip
