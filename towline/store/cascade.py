"""What follows from an end: chains close, keys are freed, waiting jobs are unblocked or failed.

Everything here follows ids that a fenced statement has just accepted, never ids that were sent.
All decrements of one step are folded into one per job, in id order.

    a blocker completed                  → open_blockers - 1; at 0: pending, or scheduled
    a blocker failed, policy "run"       → the same: the job runs and sees the failure
    a blocker failed, policy "wait"      → nothing, until the blocker is retried
    a blocker failed, policy "fail"      → the job fails, its chain ends, and so on along the edges
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from ..model import CHAIN_CODE, OUTCOME_CODE, ChainState, Live, Outcome, Policy
from ..operation import Row, Steps
from ..records import DependentRecord
from .ground import EndedJob, Ground, as_json, chunks

BAD = (ChainState.FAILED, ChainState.CANCELLED)

WAITING_END = (
    "outcome", "now", "output", "error", "blocker", "continued_by", "ended_by",
    "state", "queue", "priority", "job_id",
)  # fmt: skip
DELETE_LIVE = ("state", "queue", "priority", "job_id")
UNBLOCK = ("ended", "ended", "now", "ended", "now", "queue", "priority", "job_id")


class EndedChain(Struct, gc=False):
    """A chain whose last job has just ended."""

    id: int
    state: ChainState
    key: str | None


def end_chains(
    store: Ground, ended: Sequence[EndedChain], now: int, *, held: bool = False, alone: bool = False
) -> Steps[None]:
    """Close chains and settle all that waited.

    The chains are held; `held` says that all that follows from their end is, too, and `alone`
    that nothing does.
    """
    if ended:
        yield from store.tell_ended()
    while ended:
        over: list[Row] = [(CHAIN_CODE[c.state], now, c.id) for c in ended]
        for chunk in chunks(over):
            yield store.sql.end_chains.many(("state", "now", "id"), chunk)
        keyed: list[Row] = [(now, c.id, c.key, c.id) for c in ended if c.key is not None]
        for chunk in chunks(keyed):
            yield store.sql.end_keys.many(("now", "chain_id", "key", "chain_id"), chunk)
        if alone:
            break
        states = {chain.id: chain.state for chain in ended}
        ended = yield from free_behind(store, states, now, held=held)


def free_behind(
    store: Ground, states: Mapping[int, ChainState], now: int, *, held: bool = False
) -> Steps[list[EndedChain]]:
    """Settle the jobs behind chains that have ended so; return the chains that failed with them."""
    dependents = yield from behind(store, states)
    if not dependents:
        return []
    free: dict[int, DependentRecord] = {}
    shares: Counter[int] = Counter()
    doomed: dict[int, DependentRecord] = {}
    for dependent in dependents:
        done = states[dependent.chain_id] is ChainState.COMPLETED
        if done or dependent.policy == Policy.RUN:
            free[dependent.job_id] = dependent
            shares[dependent.job_id] += 1
        elif dependent.policy == Policy.FAIL:
            doomed.setdefault(dependent.job_id, dependent)
    unblock: list[Row] = [
        (shares[id], shares[id], now, shares[id], now, d.queue, d.priority, id)
        for id, d in sorted(free.items())
        if id not in doomed
    ]
    for chunk in chunks(unblock):
        yield store.sql.unblock_jobs.many(UNBLOCK, chunk)
    told: list[Row] = [
        (d.queue, d.priority, d.lane) for id, d in free.items() if id not in doomed and d.lane
    ]
    if told:  # that they may be in their lanes now
        yield from store.tell_filled(told, now)
    yield from store.wake(d.queue for id, d in free.items() if id not in doomed)
    if doomed and not held:
        yield from store.hold_jobs(doomed)
    return (yield from fail_jobs(store, doomed, states, now))


def behind(store: Ground, chain_ids: Iterable[int]) -> Steps[list[DependentRecord]]:
    """The jobs that wait, or waited, for these chains."""
    found: list[DependentRecord] = []
    for chunk in chunks(list(chain_ids)):
        rows = yield store.sql.find_dependents(chains=as_json(chunk))
        found += map(DependentRecord._make, rows)
    return found


def fail_jobs(
    store: Ground, doomed: Mapping[int, DependentRecord], states: Mapping[int, ChainState], now: int
) -> Steps[list[EndedChain]]:
    """Fail blocked jobs whose blocker failed; return the chains that ended with them."""
    if not doomed:
        return []
    code = OUTCOME_CODE[Outcome.FAILED]
    rows: list[Row] = []
    for id, d in sorted(doomed.items()):
        name = f" ({d.name})" if d.name else ""
        error = f"blocker chain {d.chain_id}{name} ended {states[d.chain_id]}"
        rows.append((
            code, now, None, error, d.chain_id, None, None,
            int(Live.BLOCKED), d.queue, d.priority, id,
        ))  # fmt: skip
    counts: list[Row] = []
    for chunk in chunks(rows):
        counts += yield store.sql.record_waiting_end.counted(WAITING_END, chunk)
    gone = [doomed[id] for id, (n,) in zip(sorted(doomed), counts, strict=True) if n]
    keys: list[Row] = [(int(Live.BLOCKED), d.queue, d.priority, d.job_id) for d in gone]
    for chunk in chunks(keys):
        yield store.sql.delete_live.many(DELETE_LIVE, chunk)
    yield from store.count_ended([EndedJob(d.queue, d.task, code) for d in gone], now)
    return [EndedChain(d.own_chain_id, ChainState.FAILED, d.key) for d in gone]
