"""Why a job does not run: what stands between it and a worker, read in one look.

Here are the facts; `app/why.py` makes the sentence of them. Only what the job's state makes
interesting is read, and nothing whose cost grows with the backlog.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..model import Live, State
from ..naming import EVERY
from ..operation import Steps
from ..records import BlockerRecord, JobRecord, PausedRecord, WorkerRecord
from . import limits, listing, read
from .gate import RESTING
from .ground import Ground, int_of
from .limit import Allowance, Numbers, Spent, numbers_of, read_spent

MOST_NAMED = 1000  # blockers of a job that are looked at; of more only the number is said
MOST_BEFORE = 1000  # jobs before this one that are counted
MOST_FILLING = 6  # jobs that are named of those that fill a limit


class Why(Struct):
    """A job, and what decides about it."""

    job: JobRecord
    now: int
    paused: PausedRecord | None = None  # its queue, if it is
    workers: Sequence[WorkerRecord] = ()
    before: int = 0  # pending jobs of its queue that are claimed first, up to MOST_BEFORE
    blockers: Sequence[BlockerRecord] = ()
    held_back: HeldBack | None = None  # by a limit of its queue, or of its lane


class HeldBack(Struct):
    """A limit that keeps a job from beginning: what it allows and what runs, or until when."""

    lane: str | None  # None: of the queue
    numbers: Numbers
    running: int = 0  # weight
    jobs: Sequence[int] = ()  # some of those that run
    opens_at: int | None = None
    rests: bool = False  # a handler asked for it


def why(store: Ground, job_id: int) -> Steps[Why]:
    found = Why((yield from read.job(store, job_id)), (yield from store.now()))
    job, state = found.job, found.job.state
    if not state.open:
        return found
    found.workers = yield from listing.workers(store)
    if state is State.RUNNING:
        return found
    paused = yield from listing.paused(store)
    found.paused = next((queue for queue in paused if queue.name in (EVERY, job.queue)), None)
    if state is State.BLOCKED and job.blockers <= MOST_NAMED:
        found.blockers = (yield from read.blockers(store, [job.id])).get(job.id, [])
    elif state is State.PENDING and job.held_by is None and job.parked_for is None:
        found.held_back = yield from _held_back(store, job, found.now)
        found.before = yield from _before(store, job)
    return found


def _before(store: Ground, job: JobRecord) -> Steps[int]:
    if job.lane is None or job.live_state != Live.PARKED:
        ((before,),) = yield store.sql.count_before(
            queue=job.queue, priority=job.priority, job_id=job.id, most=MOST_BEFORE
        )
    else:
        ((before,),) = yield store.sql.count_before_in_lane(
            queue=job.queue, lane=job.lane, priority=job.priority, job_id=job.id, most=MOST_BEFORE
        )
    return int_of(before)


def _held_back(store: Ground, job: JobRecord, now: int) -> Steps[HeldBack | None]:
    """The limit that holds a job back, the narrower first."""
    rows = yield store.sql.running_lanes(queue=job.queue)
    running = {lane: int_of(weight) for lane, weight, *_ in rows}
    if job.lane is not None:
        state, numbers = yield from limits.lane_of(store, job.queue, job.lane, now)
        weight = running.get(job.lane, 0)
        held = yield from _full(store, job, job.lane, numbers, weight, state.spent, now)
        if held is None and state.closed == RESTING and (state.opens_at or 0) > now:
            held = HeldBack(job.lane, numbers, opens_at=state.opens_at, rests=True)
        if held is not None:
            return held
    for *values, spent in (yield store.sql.read_limit(queue=job.queue)):
        total, known = sum(running.values()), read_spent(spent)
        numbers = numbers_of(*values)
        return (yield from _full(store, job, None, numbers, total, known, now))
    return None


def _full(
    store: Ground, job: JobRecord, lane: str | None, numbers: Numbers, running: int, spent: Spent,
    now: int,
) -> Steps[HeldBack | None]:  # fmt: skip
    """Whether a limit has no slot for a job, or no place in its window."""
    allowance = Allowance(numbers, running, spent, now)
    weight = job.weight or 1
    if not allowance.has_slots(weight):
        rows = yield store.sql.running_in(queue=job.queue, lane=lane, limit=MOST_FILLING)
        return HeldBack(lane, numbers, running, [int_of(id) for id, _ in rows])
    opens_at = allowance.opens_at(weight)
    return None if opens_at is None else HeldBack(lane, numbers, running, (), opens_at)
