"""Control from outside a worker: cancel, retry, run now, complete, fail, pause, resume.

Each works on the job as it stands and is fenced by that state; a worker that runs the job loses
its claim and learns it at its next renewal.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import DuplicateKey, InvalidState, NotFound
from ..model import (
    CHAIN_END,
    END_STATE,
    OUTCOME_CODE,
    JobRecord,
    Live,
    NewJob,
    Outcome,
    Policy,
    State,
    storable,
)
from ..operation import Steps
from . import cascade, enqueue, listing, read, revive
from .cascade import BAD, DELETE_LIVE, WAITING_END, EndedChain, EndedJob
from .finish import RECORD, successor_of
from .ground import Ground
from .listing import JobFilter

REASON = 64 * 1024  # characters of a reason, as of a handler's error
NAME = 200  # characters of who did it
RETRIED = (State.FAILED, State.CANCELLED)


class BulkPage(NamedTuple):
    """How many jobs of a page were changed, or would be; the cursor for the next one."""

    number: int
    cursor: int | None


def run_now(store: Ground, job_id: int) -> Steps[JobRecord]:
    yield from store.hold_jobs([job_id])
    record = yield from read.job(store, job_id)
    if record.state is State.PENDING:
        return record
    if record.live_state != Live.SCHEDULED:
        raise InvalidState(
            f"job {job_id} is {record.state}; only a scheduled job can be told to run now"
        )
    now = yield from store.now()
    yield store.sql.move_waiting(
        state=int(Live.PENDING), run_at=now, open_blockers=0, was=int(Live.SCHEDULED),
        queue=record.queue, priority=record.priority, job_id=job_id,
    )  # fmt: skip
    yield from store.wake([record.queue])
    return (yield from read.job(store, job_id))


def retry(store: Ground, job_id: int) -> Steps[JobRecord]:
    record = yield from read.locked_target(store, job_id)
    if record.state not in RETRIED:
        raise InvalidState(
            f"job {record.id} is {record.state}; only a failed or cancelled job can be retried"
        )
    blockers = (yield from revive.blocker_states(store, [record.id]))[record.id]
    if len(blockers) < record.blockers:
        raise InvalidState(
            f"job {record.id} cannot run again: a chain it waited for was deleted; enqueue it anew"
        )
    bad = [chain for chain, state in blockers.items() if state in BAD]
    if bad and record.policy == Policy.FAIL:
        raise InvalidState(
            f"job {record.id} waits for chain {min(bad)}, which failed; retry({min(bad)}) comes "
            "first"
        )
    now = yield from store.now()
    yield from revive.revive(store, record, blockers, now)
    return (yield from read.job(store, record.id))


def pause(store: Ground, queue: str, by: str | None = None) -> Steps[None]:
    now = yield from store.now()
    yield store.sql.pause_queue(name=queue, now=now, by=brief(by))


def resume(store: Ground, queue: str) -> Steps[None]:
    yield store.sql.resume_queue(name=queue)
    yield from store.wake([queue])


def bulk(
    store: Ground, action: str, filter: JobFilter, preview: bool, cursor: int | None, limit: int,
    by: str | None,
) -> Steps[BulkPage]:  # fmt: skip
    found = yield from listing.jobs(store, filter, limit, cursor)
    number = 0
    for record in found.records:
        if not (record.state.open if action == "cancel" else record.state in RETRIED):
            continue
        if not preview:
            try:
                if action == "cancel":
                    yield from end(store, record.id, Outcome.CANCELLED, None, None, None, by)
                else:
                    yield from retry(store, record.id)
            except (InvalidState, DuplicateKey, NotFound):
                continue  # it just ended or was deleted, or its blocker or key is in the way
        number += 1
    return BulkPage(number, found.cursor)


def end(
    store: Ground, job_id: int, outcome: Outcome, output: str | None, error: str | None,
    next: NewJob | None, by: str | None,
) -> Steps[JobRecord]:  # fmt: skip
    """End an open job. A running attempt that did not end it itself is recorded as lost."""
    record = yield from read.locked_target(store, job_id)
    if record.live_state is None:
        raise InvalidState(
            f"job {record.id} is {record.state} and cannot be {END_STATE[outcome]} any more"
        )
    now = yield from store.now()
    by, error = brief(by) or "outside", storable(error)
    if error is not None and len(error) > REASON:
        error = f"{error[:REASON]} … ({len(error):,} characters)"
    successor = None
    if next is not None:
        outcome = Outcome.CONTINUED
        (successor,) = yield from store.new_ids(1)
    code = OUTCOME_CODE[outcome]
    state, queue, priority = record.live_state, record.queue, record.priority
    if state == Live.RUNNING and record.started_at is not None:
        own = outcome is Outcome.CANCELLED
        note = error if own else f"{outcome} from outside by {by} during this attempt"
        first = code if own else OUTCOME_CODE[Outcome.LOST]
        yield store.sql.record_attempts.counted(RECORD, [(
            first, 1 if own else None, record.worker, None, now, None, note, None, None,
            by if own else None, queue, priority, record.id, record.attempt, None,
        )])  # fmt: skip
        if not own:
            yield store.sql.insert_attempt(
                job_id=record.id, number=(record.attempt or 0) + 1, outcome=code, now=now,
                output=output, error=error, continued_by=successor, ended_by=by,
            )  # fmt: skip
    else:
        yield store.sql.record_waiting_end.counted(WAITING_END, [(
            code, now, output, error, None, successor, by, state, queue, priority, record.id,
        )])  # fmt: skip
    yield store.sql.delete_live.many(DELETE_LIVE, [(state, queue, priority, record.id)])
    if next is not None and successor is not None:
        yield from enqueue.insert(store, [successor_of(record, next, successor)], now)
    else:
        ended = EndedChain(record.chain_id, CHAIN_END[outcome], record.key)
        yield from cascade.end_chains(store, [ended], now)
    yield from cascade.count_ended(store, [EndedJob(queue, record.task, code, None)], now)
    return (yield from read.job(store, record.id))


def brief(by: str | None) -> str | None:
    """Who did it, as far as there is room for it."""
    text = storable(by)
    return text if text is None else text[:NAME]
