"""Recording how attempts ended, fenced by job, attempt and worker.

completed             → the job is completed; its chain too
continued             → the job is completed; the next job of the chain is stored with it, and
                        the jobs that this one waits for and brings along
failed, timeout       → scheduled again after a delay (used + 1), or failed when used up
snoozed               → scheduled again, no attempt used
cancelled             → cancelled, the chain too; one that came too late to start has no start
lost                  → scheduled again after a wide jitter (lost + 1), or failed at the limit
released              → pending again, nothing used; an attempt never started leaves no row
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import replace

from ..model import CHAIN_END, OUTCOME_CODE, Live, Outcome, storable
from ..operation import Row, Steps
from ..records import NO_START, Claimed, Ending, JobRecord, NewJob
from ..times import micros
from . import cascade, enqueue
from .cascade import DELETE_LIVE, EndedChain
from .edges import Placed
from .ground import EndedJob, Ground, News, Reserved
from .lane import WAITING, filled, freed, resting, tell, waiting_state
from .replacing import Replacement, replace_jobs

# Seconds after which a lost attempt's job comes back: at least, at most, and however often.
LOST_BASE = 1.0
LOST_SPREAD = 10.0
LOST_CAP = 600.0

RECORD = (
    "outcome", "final", "worker", "started_at", "now", "output", "error", "error_type",
    "continued_by", "ended_by", "queue", "priority", "job_id", "attempt", "held_by",
)  # fmt: skip
RUNNING = int(Live.RUNNING)
# Asked of every job: to get a member from its class takes as long as to call a function.
COMPLETED, CONTINUED, SCHEDULED = Outcome.COMPLETED, Outcome.CONTINUED, Live.SCHEDULED
PUT_BACK = ("state", "run_at", "used", "lost", "queue", "priority", "job_id", "attempt", "held_by")


class Finished(Struct):
    """Jobs whose endings were accepted, and refused. A postponed one touches what another
    transaction holds: nothing was done, try it again."""

    accepted: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    postponed: list[int] = field(default_factory=list)


class Verdict(Struct):
    """What one ending means: the job is over, or goes back with these counters."""

    ending: Ending
    final: bool
    state: Live = Live.PENDING
    run_at: int | None = None
    used: int = 0
    lost: int = 0
    start: int | None = None  # when it began, for its row; None: when it was claimed
    successor: int | None = None
    children: Sequence[int] = ()  # ids for what is stored with the successor


def plain_ends(verdicts: Sequence[Verdict], most: int | None = None) -> dict[int, Verdict]:
    """Jobs that are over, without a key and without a successor, by their chains. With `most`,
    those whose output and error have fewer characters."""
    plain: dict[int, Verdict] = {}
    for verdict in verdicts:
        ending = verdict.ending
        if not verdict.final or ending.outcome is CONTINUED or ending.held.key is not None:
            continue
        if most is None or max(len(ending.output or ""), len(ending.error or "")) < most:
            plain.setdefault(ending.held.chain_id, verdict)
    return plain


def lost_delay(losses: int, draw: Callable[[], float] = random.random) -> int:
    """Return the microseconds a lost attempt waits before its job comes back.

    Drawn widely, so that jobs that died with one worker are not claimed together again.
    """
    base = LOST_BASE + (LOST_SPREAD - LOST_BASE) * draw()
    return micros(min(LOST_CAP, base * 2 ** min(max(losses - 1, 0), 20)))


def finish(
    store: Ground,
    endings: Sequence[Ending],
    worker: str | None,
    slot: int,
    now: int | None = None,
    wakes: bool = True,
) -> Steps[Finished]:
    """`wakes`: whether slots of lanes that come free are told to workers; a turn knows better."""
    if not endings:
        return Finished()
    if now is None:
        now = yield from store.now()
    verdicts = [_judge(store, ending, now) for ending in endings]
    accepted = yield from store.settle(verdicts, worker, slot, now)
    rest: Sequence[Verdict] = ()
    if len(accepted) < len(verdicts):
        settled = {id(verdict) for verdict in accepted}
        rest = [verdict for verdict in verdicts if id(verdict) not in settled]
    later: Sequence[Verdict] = ()
    if rest:
        reserved = yield from store.reserve(rest)
        later = reserved.later
        accepted += yield from _end(store, reserved, worker, slot, now)
    yield from _tell_lanes(store, accepted, now, wakes)
    if len(accepted) == len(verdicts):
        return Finished([verdict.ending.held.job_id for verdict in verdicts])
    kept = {id(verdict) for verdict in accepted}
    put_off = {id(verdict) for verdict in later}
    return Finished(
        [v.ending.held.job_id for v in verdicts if id(v) in kept],
        [v.ending.held.job_id for v in verdicts if id(v) not in kept and id(v) not in put_off],
        [v.ending.held.job_id for v in later],
    )


def _tell_lanes(store: Ground, accepted: Sequence[Verdict], now: int, wakes: bool) -> Steps[None]:
    """Of jobs that have passed the fence, and no others: their slots are free, and those that go
    back wait in their lanes."""
    news: list[News] = []
    for verdict in accepted:
        held = verdict.ending.held
        if held.lane is None:
            continue
        news.append(freed(held.queue, held.lane))
        if not verdict.final and verdict.state is Live.PARKED:
            news.append(filled(held.queue, held.lane, held.priority))
        if verdict.ending.rests and verdict.run_at is not None:
            news.append(resting(held.queue, held.lane, verdict.run_at, held.priority))
    if news:
        yield from tell(store, news, now)
        if wakes:
            yield from store.wake(one.queue for one in news)


def _end(
    store: Ground, reserved: Reserved, worker: str | None, slot: int, now: int
) -> Steps[list[Verdict]]:
    """Write what can be written now; return what passed the fence."""
    continued = [v for v in reserved.ready if v.ending.outcome is Outcome.CONTINUED]
    if continued:
        yield from _take_ids(store, continued)
    accepted = yield from _record(store, reserved.ready, worker, now)
    yield from store.wake(
        v.ending.held.queue for v in accepted if not v.final and v.state in WAITING
    )
    over = [verdict for verdict in accepted if verdict.final]
    yield from _consequences(store, over, now, alone=reserved.alone)
    yield from store.count_ended([ended_job(v, now) for v in over], now, slot)
    return accepted


def _take_ids(store: Ground, continued: Sequence[Verdict]) -> Steps[None]:
    """Ids for successors, each behind those of what it brings along: that is older, and first."""
    numbers = [len(v.ending.next.children) if v.ending.next else 0 for v in continued]
    ids = iter((yield from store.new_ids(len(continued) + sum(numbers))))
    for verdict, number in zip(continued, numbers, strict=True):
        verdict.children = list(islice(ids, number))
        verdict.successor = next(ids)


def ended_job(verdict: Verdict, now: int) -> EndedJob:
    """A job that is over, for the roll-up: how long its last attempt ran, and waited to begin."""
    ending = verdict.ending
    held = ending.held
    outcome = OUTCOME_CODE[ending.outcome]
    if not ending.started:
        return EndedJob(held.queue, held.task, outcome)
    began = ending.started_at or held.claimed_at
    return EndedJob(
        held.queue, held.task, outcome, max(now - began, 0), max(began - held.run_at, 0)
    )


def _judge(store: Ground, ending: Ending, now: int) -> Verdict:
    held, outcome = ending.held, ending.outcome
    start = ending.started_at if ending.started else NO_START
    if outcome is COMPLETED:
        return Verdict(ending, True, SCHEDULED, None, held.used, held.lost, start)
    ending.error = storable(ending.error)
    verdict = Verdict(ending, False, Live.SCHEDULED, None, held.used, held.lost, start)
    match outcome:
        case Outcome.FAILED | Outcome.TIMEOUT:
            verdict.used += 1
            verdict.final = ending.delay is None or verdict.used >= held.max_attempts
        case Outcome.LOST:
            verdict.lost += 1
            verdict.final = ending.delay is None or verdict.lost >= store.crash_limit
        case Outcome.RELEASED:
            verdict.state = waiting_state(held.lane)
            verdict.run_at = now if ending.started else None  # None: it has waited all the time
        case Outcome.SNOOZED:
            pass
        case _:
            verdict.final = True
    if verdict.state is Live.SCHEDULED:
        verdict.run_at = now + max(ending.delay or 0, 0)
    return verdict


def _record(
    store: Ground, verdicts: Sequence[Verdict], worker: str | None, now: int
) -> Steps[list[Verdict]]:
    """Write attempt rows and move live rows; return what passed the fence."""
    told = [verdict for verdict in verdicts if verdict.final or verdict.ending.started]
    rows: list[Row] = []
    for verdict in told:
        ending = verdict.ending
        held = ending.held
        rows.append((
            OUTCOME_CODE[ending.outcome], 1 if verdict.final else None, worker,
            verdict.start, now, ending.output, ending.error, ending.error_type,
            verdict.successor, None,
            held.queue, held.priority, held.job_id, held.attempt, held.worker,
        ))  # fmt: skip
    accepted: list[Verdict] = []
    if rows:
        counts = yield store.sql.record_attempts.counted(RECORD, rows)
        accepted = [v for v, (n,) in zip(told, counts, strict=True) if n]
        ended = [v.ending.held for v in accepted if v.final]
        over: list[Row] = [(RUNNING, h.queue, h.priority, h.job_id) for h in ended]
        if over:
            yield store.sql.delete_live.many(DELETE_LIVE, over)
        back = [_put_back(v) for v in accepted if not v.final]
        if back:
            yield store.sql.put_back.many(PUT_BACK, back)
    unstarted = [v for v in verdicts if not (v.final or v.ending.started)]
    if unstarted:
        counts = yield store.sql.put_back.counted(PUT_BACK, [_put_back(v) for v in unstarted])
        accepted += [v for v, (n,) in zip(unstarted, counts, strict=True) if n]
    return accepted


def _consequences(store: Ground, over: Sequence[Verdict], now: int, *, alone: bool) -> Steps[None]:
    """Store continuations and end chains for jobs that are over."""
    continued: list[Placed] = []
    replacing: list[Replacement] = []
    ended: list[EndedChain] = []
    for verdict in over:
        held = verdict.ending.held
        if verdict.successor is not None and verdict.ending.next is not None:
            ids = verdict.successor, verdict.children
            placed, others = yield from placed_after(store, held, verdict.ending.next, *ids, now)
            continued += placed
            replacing += others
        else:
            state = CHAIN_END[verdict.ending.outcome]
            ended.append(EndedChain(held.chain_id, state, held.key))
    if continued:
        yield from enqueue.insert(store, continued, now)
        yield from replace_jobs(store, replacing, now)
    yield from cascade.end_chains(store, ended, now, held=True, alone=alone)


def placed_after(
    store: Ground,
    before: Claimed | JobRecord,
    job: NewJob,
    id: int,
    children: Sequence[int],
    now: int,
) -> Steps[tuple[list[Placed], list[Replacement]]]:
    """Place a continuation, behind what it brings along and what that replaces; the caller has
    passed the fence.

    What is not said of queue (and lane), priority and trace is its predecessor's.
    """
    placed: list[Placed] = []
    replacing: list[Replacement] = []
    blockers = job.blockers
    if job.children:
        batch = yield from enqueue.arrange(store, job.children, children, now)
        placed, replacing = batch.placed(batch.order), batch.replacing()
        blockers = batch.resolved(job)
    heir = replace(
        job,
        queue=before.queue if job.inherit_queue else job.queue,
        priority=before.priority if job.inherit_priority else job.priority,
        lane=before.lane if job.inherit_queue and job.lane is None else job.lane,
        key=before.key,
        trace=job.trace or before.trace,
    )
    placed.append(Placed(id, before.chain_id, before.position + 1, heir, blockers))
    return placed, replacing


def _put_back(verdict: Verdict) -> Row:
    held = verdict.ending.held
    return (
        int(verdict.state), verdict.run_at, verdict.used, verdict.lost,
        held.queue, held.priority, held.job_id, held.attempt, held.worker,
    )  # fmt: skip
