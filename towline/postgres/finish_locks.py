"""What a worker's endings touch, locked before anything is written and without waiting.

An ending that needs a row which another transaction holds is put off, alone: a caller who has
enqueued behind a running chain and not committed yet delays that chain's end, and no other. What is
touched:

    the running job                            one row of `live`, under its attempt number
    the chain that ends with it, and its key   no job begins to wait for it meanwhile
    jobs behind that chain                     each waits for one less, or fails and ends its own
    chains that a continuation waits for       they stay as they are; those it brings along are new,
                                               and nobody's yet
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..model import CHAIN_END, CHAIN_STATES, ChainState, Policy
from ..operation import Row, Steps
from ..records import NewJob
from ..store import cascade
from ..store.cascade import BAD
from ..store.finish import Verdict
from ..store.ground import Ground, Reserved, as_json, chunks, int_of
from . import isolation

HOLD = ("job_id", "attempt", "held_by", "chain_id")
FENCE = ("job_id", "attempt", "held_by")
Causes = dict[int, set[int]]  # chain that ends → numbers of the endings that it follows from


def reserve(store: Ground, verdicts: Sequence[Verdict]) -> Steps[Reserved]:
    """The lock phase of `finish`."""
    held = [verdict.ending.held for verdict in verdicts]
    ends = [CHAIN_END.get(v.ending.outcome) if v.final else None for v in verdicts]
    rows = yield store.sql.hold_running.many(HOLD, [
        (h.job_id, h.attempt, h.worker, h.chain_id if end else None)
        for h, end in zip(held, ends, strict=True)
    ])  # fmt: skip
    isolation.refuse_old_snapshot(rows)
    jobs = {id for kind, id, _ in rows if kind == 0}
    chains = {id for kind, id, _ in rows if kind == 1}
    ours = {
        number
        for number, (h, end) in enumerate(zip(held, ends, strict=True))
        if h.job_id in jobs and (end is None or h.chain_id in chains)
    }
    later: set[int] = set()
    if len(ours) < len(verdicts):
        others = [number for number in range(len(verdicts)) if number not in ours]
        fences: list[Row] = [(held[n].job_id, held[n].attempt, held[n].worker) for n in others]
        rows = yield store.sql.still_running.many(FENCE, fences)
        later = {others[int_of(number)] for (number,) in rows}  # all others are fenced out
    waiting = [number for number in sorted(ours) if _waits(verdicts[number])]
    if waiting:
        later |= yield from _reserve_waiting(store, waiting, verdicts, ends)
    states: dict[int, ChainState] = {}
    causes: Causes = {}
    keyed: set[int] = set()
    for number in ours:
        end = ends[number]
        if end is not None:
            chain = held[number].chain_id
            states[chain] = end
            causes.setdefault(chain, set()).add(number)
            if held[number].key is not None:
                keyed.add(chain)
    alone = True
    ending: Causes = {}
    while states:
        for chain, cause in causes.items():
            ending.setdefault(chain, set()).update(cause)
        later |= yield from _busy_keys(store, keyed, causes)
        behind = yield from cascade.behind(store, states)
        if not behind:
            break
        alone = False
        free: dict[int, bool] = {}
        for chunk in chunks(sorted({d.job_id for d in behind})):
            blocked = yield store.sql.hold_blocked(jobs=as_json(chunk))
            free.update((int_of(job), bool(mine)) for job, mine in blocked)
        failing: Causes = {}
        keyed = set()
        for dependent in behind:
            if dependent.job_id not in free:
                continue
            cause = causes[dependent.chain_id]
            if not free[dependent.job_id]:
                later |= cause
            elif states[dependent.chain_id] in BAD and dependent.policy == Policy.FAIL:
                failing.setdefault(dependent.own_chain_id, set()).update(cause)
                if dependent.key is not None:
                    keyed.add(dependent.own_chain_id)
        later |= yield from _busy_chains(store, failing)
        states = dict.fromkeys(failing, ChainState.FAILED)
        causes = failing
    for number in waiting:
        # Not yet stored, so not found behind a chain that another ending of this turn ends.
        wanted = ending.keys() & _awaited(verdicts[number])
        if _of(wanted, ending) - later - {number}:
            later.add(number)
    ready = [verdicts[number] for number in sorted(ours - later)]
    return Reserved(ready, [verdicts[number] for number in sorted(later)], alone)


def hold_end(store: Ground, chain: int) -> Steps[bool]:
    """All that the end of a chain without a key touches; whether it is ours."""
    rows = yield store.sql.hold_chains_now(chains=as_json([chain]))
    if not rows:
        return False
    isolation.refuse_old_snapshot(rows)
    ((last,),) = yield store.sql.chain_tail(chain_id=chain)
    jobs = as_json([last])
    held = yield store.sql.hold_jobs_now(jobs=jobs)
    if not held and (yield store.sql.open_keys(jobs=jobs)):
        return False
    behind = yield from cascade.behind(store, [chain])
    for chunk in chunks(sorted({dependent.job_id for dependent in behind})):
        blocked = yield store.sql.hold_blocked(jobs=as_json(chunk))
        if not all(ours for _, ours in blocked):
            return False
    return True


def _reserve_waiting(
    store: Ground,
    waiting: Sequence[int],
    verdicts: Sequence[Verdict],
    ends: list[ChainState | None],
) -> Steps[set[int]]:
    """Continuations that wait: their own chains are held, the chains they wait for shared.

    One that waits for a failed chain fails at once, and its chain ends with it.
    """
    own = {verdicts[n].ending.held.chain_id: {n} for n in waiting}
    later = yield from _busy_chains(store, own)
    for number in waiting:
        wanted = _awaited(verdicts[number])
        shared: set[int] = set()
        found = wanted
        while found - shared and number not in later:
            rows = yield store.sql.share_chains_now(chains=as_json(found - shared))
            missing = found - shared - {int_of(id) for (id,) in rows}
            if missing and (yield store.sql.chain_records(ids=as_json(missing))):
                later.add(number)
            elif missing:
                break  # there is no such chain, which insert will say
            shared |= found
            found = yield from store.find_upstream(wanted, False)
        if number in later:
            continue  # chain_states would wait for the transaction that holds the chain
        rows = yield store.sql.chain_states(chains=as_json(wanted & shared))
        bad = {int_of(id) for id, state, _ in rows if CHAIN_STATES[int_of(state)] in BAD}
        if bad and _fails_at_once(verdicts[number], bad):
            ends[number] = ChainState.FAILED
    return later


def _busy_chains(store: Ground, causes: Mapping[int, set[int]]) -> Steps[set[int]]:
    """Endings that end, or block, a chain which another transaction holds."""
    held: set[int] = set()
    for chunk in chunks(sorted(causes)):
        rows = yield store.sql.hold_chains_now(chains=as_json(chunk))
        held.update(int_of(id) for id, _ in rows)
    return _of(causes.keys() - held, causes)


def _busy_keys(
    store: Ground, chains: Iterable[int], causes: Mapping[int, set[int]]
) -> Steps[set[int]]:
    """Endings of chains whose key another transaction holds."""
    busy: set[int] = set()
    for chunk in chunks(sorted(set(chains))):
        rows = yield store.sql.hold_keys_now(chains=as_json(chunk))
        busy.update(int_of(chain) for chain, ours in rows if not ours)
    return _of(busy, causes)


def _waits(verdict: Verdict) -> bool:
    """Whether a continuation waits for more than what is born with it. A key may be another's."""
    following = verdict.ending.next
    if following is None:
        return False
    return any(job.key is not None for job in following.children) or bool(_awaited(verdict))


def _awaited(verdict: Verdict) -> set[int]:
    """The stored chains that a continuation waits for, itself or through what it brings along."""
    following = verdict.ending.next
    if following is None:
        return set()
    jobs = (following, *following.children)
    return {b.chain_id for job in jobs for b in job.blockers if b.chain_id is not None}


def _fails_at_once(verdict: Verdict, bad: set[int]) -> bool:
    """Whether a continuation fails as it is stored, since these chains have failed."""
    following = verdict.ending.next
    assert following is not None
    doomed: set[int] = set()  # of what it brings along, by index

    def fails(job: NewJob) -> bool:
        behind = (b.chain_id in bad or b.index in doomed for b in job.blockers)
        return job.policy is Policy.FAIL and any(behind)

    while more := {n for n, job in enumerate(following.children) if fails(job)} - doomed:
        doomed |= more
    return fails(following)


def _of(chains: Iterable[int], causes: Mapping[int, set[int]]) -> set[int]:
    return {number for chain in chains for number in causes[chain]}
