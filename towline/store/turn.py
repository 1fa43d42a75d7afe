"""A worker's turn and its parts: promote, claim, park, and the look that comes before.

scheduled ──promote──► pending ──claim──► running ──finish──► ended, or back
                          ▲                  │ park (task unknown here)
                          └──unpark── parked ◄┘

A worker claims for its free slots, and sometimes ahead of them. What is claimed ahead is shown as
pending until it begins; it goes back untouched when its worker dies before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from ..model import BlockerRecord, Claimed, Ending, unknown_task
from ..operation import Steps
from ..sql import Row
from . import finish, lease, read
from .cascade import DELETE_LIVE
from .finish import Finished
from .ground import KEY, Ground, as_json, int_of
from .lease import Begin, Report

PARK = ("parked_for", "queue", "priority", "job_id", "attempt", "held_by")
PROMOTE_LIMIT = 1000
UNPARK_LIMIT = 1000
ORPHAN_LIMIT = 1000


class Peeked(NamedTuple):
    """What a worker finds when it looks: work for it now, or a time at which to look again."""

    pending: int
    parked: bool  # a job that some other worker did not know, and this one does
    next_due: int | None
    now: int


class Turn(Struct):
    """One beat of a worker: what was finished and claimed, and when to look again.

    The first of what was claimed are for the free slots, the rest is claimed ahead.
    """

    finished: Finished
    claimed: list[Claimed]
    blockers: dict[int, list[BlockerRecord]]
    promoted: int
    next_due: int | None
    now: int
    unparked: int | None = None  # of those asked for; None when there was no room to ask


def turn(
    store: Ground,
    worker: int,
    name: str,
    queues: Sequence[str],
    room: int,
    endings: Sequence[Ending],
    tasks: Sequence[str],
    ahead: int,
    begins: Sequence[Begin],
    reports: Sequence[Report],
) -> Steps[Turn]:
    now = yield from store.now()
    promoted = yield from store.promote(PROMOTE_LIMIT, now)
    if begins or reports:
        yield from lease.progress(store, reports, begins)
    finished = yield from finish.finish(store, endings, name, worker, now)
    unparked = None
    if tasks and room > 0:
        unparked = yield from unpark(store, tasks, queues, room)
    claimed = yield from claim(store, worker, queues, room, name, ahead, now)
    waited = [job.job_id for job in claimed if job.blockers]
    blockers = (yield from read.blockers(store, waited)) if waited else {}
    due = None
    if len(claimed) < room:
        due = yield from _next_due(store)
    return Turn(finished, claimed, blockers, promoted, due, now, unparked)


def claim(
    store: Ground,
    worker: int,
    queues: Sequence[str],
    room: int,
    name: str | None = None,
    ahead: int = 0,
    now: int | None = None,
) -> Steps[list[Claimed]]:
    if room + ahead <= 0 or not queues:
        return []
    if now is None:
        now = yield from store.now()
    return (yield from store.take_pending(worker, queues, room + ahead, room, name, now))


def promote(store: Ground, limit: int = PROMOTE_LIMIT) -> Steps[int]:
    """Make scheduled jobs pending whose time has come, oldest first, a bounded number."""
    now = yield from store.now()
    return (yield from store.promote(limit, now))


def _next_due(store: Ground) -> Steps[int | None]:
    """When the next scheduled job is due, in microseconds; None when nothing is scheduled."""
    ((run_at,),) = yield store.sql.next_due()
    return None if run_at is None else int_of(run_at)


def peek(store: Ground, queues: Sequence[str], most: int, tasks: Sequence[str]) -> Steps[Peeked]:
    now = yield from store.now()
    ((found, parked),) = yield store.sql.peek_pending(
        queues=as_json(queues), most=most, reasons=as_json(map(unknown_task, tasks))
    )
    due = yield from _next_due(store)
    return Peeked(int_of(found), bool(parked), due, now)


def park(store: Ground, jobs: Sequence[Claimed]) -> Steps[int]:
    rows: list[Row] = [
        (unknown_task(j.task), j.queue, j.priority, j.job_id, j.attempt, j.worker) for j in jobs
    ]
    counts = (yield store.sql.park_jobs.counted(PARK, rows)) if rows else []
    parked = [job for job, (count,) in zip(jobs, counts, strict=True) if count]
    yield from store.wake(job.queue for job in parked)  # another worker may know it
    return len(parked)


def unpark(
    store: Ground, tasks: Sequence[str], queues: Sequence[str], limit: int = UNPARK_LIMIT
) -> Steps[int]:
    """Make parked jobs of these tasks pending again, a bounded number; call until it says 0."""
    reasons = as_json(map(unknown_task, tasks))
    rows = yield store.sql.find_parked(reasons=reasons, queues=as_json(queues), limit=limit)
    if rows:
        yield store.sql.unpark_jobs.many(KEY, rows)
        yield from store.wake(str(queue) for queue, *_ in rows)
    return len(rows)


def drop_orphans(store: Ground, queues: Sequence[str]) -> Steps[int]:
    rows = yield store.sql.find_orphans(queues=as_json(queues), limit=ORPHAN_LIMIT)
    if rows:
        yield store.sql.delete_live.many(DELETE_LIVE, rows)
        yield from store.wake(queues)
    return len(rows)
