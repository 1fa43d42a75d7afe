"""Why a job does not run: what stands between it and a worker, read in one look.

Here are the facts; `app/why.py` makes the sentence of them. Only what the job's state makes
interesting is read, and nothing whose cost grows with the backlog.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ..model import BlockerRecord, JobRecord, PausedRecord, State, WorkerRecord
from ..operation import Steps
from . import listing, read
from .ground import Ground, int_of

MOST_BEFORE = 1000  # jobs before this one that are counted


class Why(Struct):
    """A job, and what decides about it."""

    job: JobRecord
    now: int
    paused: PausedRecord | None = None  # its queue, if it is
    workers: Sequence[WorkerRecord] = ()
    before: int = 0  # pending jobs of its queue that are claimed first, up to MOST_BEFORE
    blockers: Sequence[BlockerRecord] = ()


def why(store: Ground, job_id: int) -> Steps[Why]:
    found = Why((yield from read.job(store, job_id)), (yield from store.now()))
    job, state = found.job, found.job.state
    if not state.open:
        return found
    found.workers = yield from listing.workers(store)
    if state is State.RUNNING:
        return found
    paused = yield from listing.paused(store)
    found.paused = next((queue for queue in paused if queue.name == job.queue), None)
    if state is State.BLOCKED:
        found.blockers = (yield from read.blockers(store, [job.id])).get(job.id, [])
    elif state is State.PENDING and job.held_by is None:
        ((before,),) = yield store.sql.count_before(
            queue=job.queue, priority=job.priority, job_id=job.id, most=MOST_BEFORE
        )
        found.before = int_of(before)
    return found
