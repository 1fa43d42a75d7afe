"""Control from outside a worker: cancel, retry, run now, run again, complete, fail, pause, resume.

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
    ChainState,
    Live,
    Outcome,
    Policy,
    State,
    storable,
)
from ..operation import Steps
from ..records import JobRecord, NewBlocker, NewJob
from . import audit, cascade, enqueue, gate, key, limits, listing, read, revive
from .audit import brief
from .cascade import BAD, DELETE_LIVE, WAITING_END, EndedChain
from .finish import RECORD, placed_after
from .ground import EndedJob, Ground, int_of
from .lane import freed, tell, waiting_state
from .listing import JobFilter
from .replacing import replace_jobs

# What a chain that runs again has of the first job: not its time, nor its schedule.
AGAIN = (
    "task", "arguments", "queue", "priority", "max_attempts", "timeout", "label", "key", "trace",
    "lane", "weight",
)  # fmt: skip
REASON = 64 * 1024  # characters of a reason, as of a handler's error
RETRIED = frozenset({State.FAILED, State.CANCELLED})
# Which states an action on many is about; jobs in others are passed over.
BULK = {
    "cancel": frozenset(state for state in State if state.open),
    "retry": RETRIED,
    "run_now": frozenset({State.SCHEDULED}),
}


class BulkPage(NamedTuple):
    """How many jobs of a page were changed, or would be; the cursor for the next one."""

    number: int
    cursor: int | None


def run_now(store: Ground, job_id: int) -> Steps[JobRecord]:
    yield from store.hold_jobs([job_id])
    record = yield from read.job(store, job_id)
    if record.live_state == Live.PARKED and record.parked_for is None:
        running = yield from _running_of(store, record)
        raise InvalidState(
            f"job {job_id} waits in lane {record.lane} of queue {record.queue} ({running}); "
            "set_limit lets it go"
        )
    if record.state is State.PENDING:
        return record
    if record.live_state != Live.SCHEDULED:
        raise InvalidState(
            f"job {job_id} is {record.state}; only a scheduled job can be told to run now"
        )
    now = yield from store.now()
    yield store.sql.move_waiting(
        state=int(waiting_state(record.lane)), run_at=now, open_blockers=0, was=int(Live.SCHEDULED),
        queue=record.queue, priority=record.priority, job_id=job_id,
    )  # fmt: skip
    yield from store.tell_filled([(record.queue, record.priority, record.lane)], now)
    yield from store.wake([record.queue])
    return (yield from read.job(store, job_id))


def _running_of(store: Ground, record: JobRecord) -> Steps[str]:
    """How much of a job's lane runs, of how much."""
    rows = yield store.sql.running_lanes(queue=record.queue)
    running = next((int_of(weight) for lane, weight, *_ in rows if lane == record.lane), 0)
    _, numbers = yield from limits.lane_of(store, record.queue, record.lane or "", 0)
    limit = numbers.concurrency
    return f"{running} running" if limit is None else f"{running} of {limit} running"


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


def rerun(store: Ground, job_id: int) -> Steps[JobRecord]:
    """A new chain like a completed one, behind what that one waited for."""
    chain, _ = yield from read.chain(store, (yield from read.job(store, job_id)).chain_id)
    if chain.state is not ChainState.COMPLETED:
        hint = "it goes on" if chain.state is ChainState.OPEN else f"retry({chain.id}) runs it"
        raise InvalidState(f"chain {chain.id} is {chain.state}, not completed: {hint}")
    first = yield from read.job(store, chain.id)
    edges = (yield from read.blockers(store, [first.id])).get(first.id, ())
    if len(edges) < first.blockers:
        raise InvalidState(
            f"chain {chain.id} cannot run again: a chain it waited for was deleted; enqueue it anew"
        )
    again = NewJob(
        **{name: getattr(first, name) for name in AGAIN},
        policy=Policy(first.policy),
        on_conflict="return" if first.key is None else "raise",
        blockers=[NewBlocker(e.chain_id, None, e.name, e.trace) for e in edges if e.position >= 0],
    )
    (stored,) = yield from enqueue.enqueue(store, [again])
    return stored.record


def pause(store: Ground, queue: str, by: str | None = None) -> Steps[None]:
    now = yield from store.now()
    yield store.sql.pause_queue(name=queue, now=now, by=brief(by))
    yield from audit.note(store, by, "pause", queue=queue)


def resume(store: Ground, queue: str, by: str | None = None) -> Steps[None]:
    yield store.sql.resume_queue(name=queue)
    yield from audit.note(store, by, "resume", queue=queue)
    yield from store.wake([queue])


def bulk(
    store: Ground, action: str, filter: JobFilter, preview: bool, cursor: int | None, limit: int,
    by: str | None,
) -> Steps[BulkPage]:  # fmt: skip
    found = yield from listing.jobs(store, filter, limit, cursor)
    fitting = [record.id for record in found.records if record.state in BULK[action]]
    if preview:
        return BulkPage(len(fitting), found.cursor)
    changed: list[int] = []
    for id in fitting:
        try:
            if action == "cancel":
                yield from end(store, id, Outcome.CANCELLED, None, None, None, by)
            elif action == "retry":
                yield from retry(store, id)
            else:
                yield from run_now(store, id)
        except (InvalidState, DuplicateKey, NotFound):
            continue  # it just ended or was deleted, or its blocker or key is in the way
        changed.append(id)
    if changed:
        chosen, number = audit.described(filter), len(changed)
        yield from audit.note(store, by, action, number=number, chosen=chosen, each=changed)
    return BulkPage(len(changed), found.cursor)


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
    successor, children = None, list[int]()
    if next is not None:
        outcome = Outcome.CONTINUED
        *children, successor = yield from store.new_ids(len(next.children) + 1)
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
    if state == Live.RUNNING:
        if record.lane is not None:
            yield from tell(store, [freed(queue, record.lane)], now)
        # Where there is a limit, another worker may have room for what comes next.
        yield from store.wake((yield from gate.find(store, [queue])))
    if next is not None and successor is not None:
        next = yield from key.stay_in_line(store, record, next)
        placed, replacing = yield from placed_after(store, record, next, successor, children, now)
        yield from enqueue.insert(store, placed, now)
        yield from replace_jobs(store, replacing, now)
    else:
        yield from key.close_up(store, record)
        ended = EndedChain(record.chain_id, CHAIN_END[outcome], record.key)
        yield from cascade.end_chains(store, [ended], now)
    yield from store.count_ended([EndedJob(queue, record.task, code)], now)
    return (yield from read.job(store, record.id))
