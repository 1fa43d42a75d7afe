"""Deleting: one chain and what belongs to it, or old ended chains a bounded batch at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from ..errors import InvalidState, NotFound, StillNeeded
from ..model import Live
from ..operation import Op, Row, Steps
from ..times import MICRO
from . import audit, gate, read
from . import key as key_line
from .cascade import DELETE_LIVE
from .ground import MINUTE, EndedJob, Ground, as_json, int_of
from .lane import freed, tell

PRUNE_BATCH = 500
PRUNE_JOBS = 2000  # that one batch deletes: chains may be long
PRUNE_WALK = 10  # times as many chains as a batch may delete are looked at by it
HOUR = 60  # in minutes, as the roll-ups count
KEEP_MINUTES = 2 * 24 * HOUR
KEEP_HOURS = 90 * 24 * HOUR
KEEP_DAYS = 400 * 24 * HOUR
DAY = 24 * HOUR
MOST_NAMED = 1000  # chains that the line about their deletion names
AGE = 2**40  # longer than any history: all that is older becomes one row


class KeepFor(Struct, frozen=True):
    """How long ended chains stay, in microseconds; None keeps them for ever."""

    completed: int | None
    failed: int | None
    cancelled: int | None

    def over(self, chain: Row, now: int) -> bool:
        """Whether a chain (id, state, created_at, ended_at) has ended and stayed long enough."""
        _, state, _, ended_at = chain
        age = (None, self.completed, self.failed, self.cancelled)[int_of(state)]
        return age is not None and int_of(ended_at) <= now - age


class Pruned(NamedTuple):
    """What one batch of retention did; `done` when it reached the young end."""

    chains: int
    done: bool
    position: int = 0  # where the next one goes on


def delete(
    store: Ground, chain_ids: Sequence[int], cascade: bool = False, force: bool = True,
    by: str | None = None,
) -> Steps[list[int]]:  # fmt: skip
    known = yield from read.chain_records(store, chain_ids)
    missing = set(chain_ids) - {chain.id for chain in known}
    if missing:
        raise NotFound(f"there is no chain {min(missing)}")
    while True:
        chains, jobs = yield from _belonging(store, chain_ids, cascade)
        if (yield from store.hold_to_delete(sorted(chains), jobs)):
            break
    waiting = yield store.sql.find_waiting_outside(chains=as_json(sorted(chains)))
    if waiting:
        dependents = tuple(dict.fromkeys(int_of(job) for _, job in waiting))
        raise StillNeeded(
            f"chain {int_of(waiting[0][0])} cannot be deleted: "
            f"{'job' if len(dependents) == 1 else 'jobs'} "
            f"{', '.join(map(str, dependents[:10]))}{' …' if len(dependents) > 10 else ''} "
            "wait for it; delete or cancel them first",
            dependents,
        )
    if not force:
        for state, _, _, job, _ in (yield store.sql.open_keys(jobs=as_json(sorted(jobs)))):
            if state == Live.RUNNING:
                raise InvalidState(
                    f"job {int_of(job)} is running: cancel it first, or delete with "
                    "force=True, which takes it from its worker"
                )
    gone = sorted(chains)
    yield from _remove(store, gone, open=True)
    chosen = None if by is None else json.dumps({"chains": gone[:MOST_NAMED]})
    yield from audit.note(store, by, "delete", number=len(gone), chosen=chosen)
    return gone


def needed(store: Ground, chain_ids: Sequence[int]) -> Steps[dict[int, int]]:
    rows = yield store.sql.find_waiting_outside(chains=as_json(sorted(chain_ids)))
    return {int_of(chain): int_of(job) for chain, job in rows}


def prune(store: Ground, ages: KeepFor, limit: int = PRUNE_BATCH) -> Steps[Pruned]:
    now = yield from store.now()
    position = yield from store.prune_position()
    if position is None:
        return Pruned(0, True)
    kept = [age for age in (ages.completed, ages.failed, ages.cancelled) if age is not None]
    if not kept:
        yield from _fold(store, now)
        return Pruned(0, True)
    ripe, position, done = yield from _walk(store, ages, position, limit, now)
    pruned = yield from _prune_ripe(store, ages, ripe, position, done, now)
    done = pruned.done
    yield store.sql.set_mark(name="prune", value=0 if done else pruned.position)
    if done:
        yield from _fold(store, now)
        if len(kept) == len(KeepFor.__struct_fields__):  # else some history stays for ever
            yield store.sql.drop_old_audit(before=now - max(kept))
    return pruned


def prune_by(store: Ground, ages: KeepFor, position: int, preview: bool) -> Steps[Pruned]:
    now = yield from store.now()
    ripe, position, done = yield from _walk(store, ages, position, PRUNE_BATCH, now)
    if preview:
        old = yield from _not_needed(store, [int_of(id) for id, *_ in ripe])
        return Pruned(len(old), done, position)
    return (yield from _prune_ripe(store, ages, ripe, position, done, now))


def noted(
    store: Ground, batch: Op[Pruned], ages: KeepFor, older_than: int | None, by: str
) -> Steps[Pruned]:
    """Prune a batch for somebody, and leave a line of how many that were and what was chosen."""
    pruned = yield from batch
    if pruned.chains:
        states = [state for state, age in asdict(ages).items() if age is not None]
        said = {} if older_than is None else {"older_than": older_than / MICRO}
        chosen = json.dumps({"state": states, **said})
        yield from audit.note(store, by, "prune", number=pruned.chains, chosen=chosen)
    return pruned


def _prune_ripe(
    store: Ground, ages: KeepFor, ripe: Sequence[Row], position: int, done: bool, now: int
) -> Steps[Pruned]:
    """Delete those of a walk that are ours to prune and that nobody needs."""
    if ripe:
        ripe = [row for row in (yield from store.hold_old(ripe)) if ages.over(row, now)]
    old = yield from _not_needed(store, [int_of(id) for id, *_ in ripe])
    gone = yield from _remove_some(store, old)
    if len(gone) < len(old):  # the next batch goes on with the first that is still there
        position, done = min(set(old) - set(gone)) - 1, False
    return Pruned(len(gone), done, position)


def _walk(
    store: Ground, ages: KeepFor, position: int, limit: int, now: int
) -> Steps[tuple[list[Row], int, bool]]:
    """Ended chains that are old enough, past a position; how far that went, and whether to the
    end."""
    kept = [age for age in (ages.completed, ages.failed, ages.cancelled) if age is not None]
    if not kept:
        return [], position, True
    youngest = now - min(kept)
    ripe: list[Row] = []
    done = False
    for _ in range(PRUNE_WALK):  # past those that stay
        rows = yield store.sql.walk_old_chains(position=position, limit=limit - len(ripe))
        done = len(rows) < limit - len(ripe)
        for row in rows:
            if int_of(row[2]) > youngest:
                done = True
                break
            position = int_of(row[0])
            if ages.over(row, now):
                ripe.append(row)
        if done or len(ripe) == limit:
            break
    return ripe, position, done


def _remove_some(store: Ground, chains: Sequence[int]) -> Steps[Sequence[int]]:
    """Delete as many of these chains as have few enough jobs together; return those.

    The youngest first, since chains wait for older ones. Of a chain that is too long by itself
    the jobs between its first and its last go, the oldest first, as many as one batch may
    delete: what it ended with is there until all of it goes.
    """
    if not chains:
        return []
    rows = yield store.sql.count_later_jobs(chains=as_json(chains))
    later = {int_of(chain): int_of(number) for chain, number in rows}
    part: list[int] = []
    room = PRUNE_JOBS
    for chain in reversed(chains):
        room -= 1 + later.get(chain, 0)
        if room < 0:
            break
        part.append(chain)
    if len(part) < len(chains):
        part = yield from _not_needed(store, part)
    longest = max(chains, key=lambda chain: later.get(chain, 0))
    if not part and later.get(longest, 0) > 1:
        limit = min(PRUNE_JOBS, later[longest] - 1)
        rows = yield store.sql.inner_jobs(chain_id=longest, limit=limit)
        yield from _remove_jobs(store, [int_of(id) for (id,) in rows])
        return []
    gone = part or list(chains)
    yield from _remove(store, gone)
    return gone


def _belonging(
    store: Ground, chain_ids: Sequence[int], cascade: bool
) -> Steps[tuple[set[int], set[int]]]:
    """These chains and their jobs; with cascade also every chain they wait for, and its."""
    chains = set(chain_ids)
    jobs: set[int] = set()
    fresh = set(chains)
    while fresh:
        rows = yield store.sql.chain_job_ids(chains=as_json(sorted(fresh)))
        found = {int_of(id) for id, *_ in rows}
        jobs |= found
        fresh = set()
        if cascade:
            rows = yield store.sql.blockers_of_jobs(jobs=as_json(sorted(found)))
            fresh = {int_of(id) for (id,) in rows} - chains
            chains |= fresh
    return chains, jobs


def _not_needed(store: Ground, chains: list[int]) -> Steps[list[int]]:
    """Those of these chains that can go. What stays needs its blockers, so leaving one out may make
    another needed."""
    while chains:
        rows = yield store.sql.find_needed(chains=as_json(chains))
        if not rows:
            break
        needed = {id for (id,) in rows}
        chains = [chain for chain in chains if chain not in needed]
    return chains


def _remove(store: Ground, chains: Sequence[int], *, open: bool = False) -> Steps[None]:
    if not chains:
        return
    rows = yield store.sql.chain_job_ids(chains=as_json(chains))
    keys: list[Row] = [
        (chain, key, chain) for id, chain, key in rows if key is not None and id == chain
    ]
    if keys and open:  # what still waits in the line of its key leaves it
        lives = yield store.sql.open_keys(jobs=as_json(id for id, *_ in rows))
        blocked = [int_of(job) for state, _, _, job, _ in lives if state == Live.BLOCKED]
        for record in (yield from read.records(store, blocked)):
            yield from key_line.close_up(store, record)
    if keys:
        yield store.sql.delete_keys.many(("chain_id", "key", "chain_id"), keys)
    yield from _remove_jobs(store, [int_of(id) for id, *_ in rows])
    yield store.sql.delete_edges.many(("chain_id",), [(chain,) for chain in chains])
    yield store.sql.delete_chains.many(("id",), [(chain,) for chain in chains])


def _remove_jobs(store: Ground, ids: Sequence[int]) -> Steps[None]:
    now = yield from store.now()
    jobs = as_json(ids)
    ended = [
        EndedJob(str(queue), str(task), int_of(outcome), ended=0, removed=int_of(number))
        for queue, task, outcome, number in (yield store.sql.count_ended_of(jobs=jobs))
    ]
    yield from store.count_ended(ended, now)
    rows = yield store.sql.open_keys(jobs=jobs)
    if rows:
        yield store.sql.delete_live.many(DELETE_LIVE, [row[:4] for row in rows])
        ran = [(str(queue), lane) for state, queue, _, _, lane in rows if state == Live.RUNNING]
        yield from tell(store, [freed(queue, str(lane)) for queue, lane in ran if lane], now)
        yield from store.wake((yield from gate.find(store, sorted({queue for queue, _ in ran}))))
    yield store.sql.keep_job_id()
    yield store.sql.delete_audit_of_jobs(jobs=jobs)
    yield store.sql.delete_attempts.many(("job_id",), [(id,) for id in ids])
    yield store.sql.delete_edges_of_jobs.many(("job_id",), [(id,) for id in ids])
    yield store.sql.delete_jobs.many(("id",), [(id,) for id in ids])


def _fold(store: Ground, now: int) -> Steps[None]:
    """Make old roll-ups coarser, so that counting does not grow with history."""
    minute = now // MINUTE
    for keep, unit in ((KEEP_MINUTES, HOUR), (KEEP_HOURS, DAY), (KEEP_DAYS, AGE)):
        before = (minute - keep) // DAY * DAY
        yield store.sql.fold_rollups(before=before, unit=unit)
        yield store.sql.drop_folded_rollups(before=before, unit=unit)
