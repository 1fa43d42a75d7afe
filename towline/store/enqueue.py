"""Storing new jobs: chains, continuations, keys and blockers, in whatever transaction is open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..errors import BlockerError, DuplicateKey, StoreError
from ..model import (
    CHAIN_STATES,
    ChainState,
    DependentRecord,
    Enqueued,
    JobRecord,
    Live,
    NewBlocker,
    NewJob,
    Policy,
)
from ..operation import Steps
from ..sql import Row
from . import cascade, read
from .cascade import BAD
from .columns import JOB, new_record, row_of
from .ground import FOREVER, Ground, as_json, chunks, int_of, portions

CHAIN = ("id", "task", "created_at", "trace")
LIVE = ("state", "queue", "priority", "job_id", "attempt", "open_blockers", "run_at")
BLOCKER = ("chain_id", "job_id", "position", "name", "trace")
KEY_MISSES = 1000  # of keys that no chain has and none can take: far more than chains that go
TAKE_KEY = ("task", "key", "chain_id", "now", "expired")


class Placed(Struct):
    """A new job with its place: id, chain and position are decided."""

    id: int
    chain_id: int
    position: int
    job: NewJob
    blockers: Sequence[NewBlocker] = ()


def enqueue(store: Ground, jobs: Sequence[NewJob]) -> Steps[Sequence[Enqueued]]:
    if not jobs:
        return []
    order = _blockers_first(jobs)
    now = yield from store.now()
    ids = yield from store.new_ids(len(jobs))
    chains: dict[int, int] = dict(zip(order, ids, strict=True))  # by index
    taken: dict[int, int] = {}  # those that have the key already
    if any(job.key is not None for job in jobs):
        jobs = list(jobs)
        taken = yield from _take_keys(store, jobs, order, chains, now)
        chains.update(taken)
    records: dict[int, JobRecord] = {}
    for part in chunks(order):
        fresh = [i for i in part if i not in taken] if taken else part
        placed = [
            Placed(chains[i], chains[i], 0, jobs[i], _resolve(jobs[i], chains)) for i in fresh
        ]
        records.update(zip(fresh, (yield from insert(store, placed, now)), strict=True))
    for index, chain in taken.items():
        tail = yield from read.tail(store, chain)
        assert tail is not None
        records[index] = tail
    return [Enqueued(records[index], index not in taken) for index in range(len(jobs))]


def insert(store: Ground, placed: Sequence[Placed], now: int) -> Steps[list[JobRecord]]:
    """Write the rows of new jobs. A job with open blockers is blocked, one whose time has not
    come is scheduled, any other is pending at once. One behind a failure follows its policy.
    """
    waiting = [place.chain_id for place in placed if place.position and place.blockers]
    if waiting:  # chains that go on with a job that waits; what waits for them must see it
        yield from store.hold_chains(waiting)
    states = yield from _blocker_states(store, placed)
    records: list[JobRecord] = []
    doomed: dict[int, DependentRecord] = {}
    # Rows of one part at a time: a large batch, or one of large arguments, stays small.
    for part in portions(placed, lambda place: len(place.job.arguments)):
        chains: list[Row] = []
        jobs: list[Row] = []
        lives: list[Row] = []
        edges: list[Row] = []
        for place in part:
            job = place.job
            waits = _waits(place, states, edges, doomed) if place.blockers else 0
            run_at = due_at(job, now)
            state = BLOCKED if waits else SCHEDULED if run_at > now else PENDING
            if place.position == 0:
                chains.append((place.id, job.task, now, job.trace))
            number = len(place.blockers)
            row = row_of(job, place.id, place.chain_id, place.position, number, now)
            jobs.append(row)
            lives.append((state, job.queue, job.priority, place.id, 0, waits, run_at))
            records.append(new_record(*row, state, 0, 0, 0, waits, run_at))
        if chains:
            yield store.sql.insert_chains.many(CHAIN, chains)
        yield store.sql.insert_jobs.many(JOB, jobs)
        yield store.sql.insert_live.many(LIVE, lives)
        for chunk in chunks(edges):
            yield store.sql.insert_blockers.many(BLOCKER, chunk)
    yield from _refuse_circles(store, placed)
    if doomed:
        fresh = {place.id for place in placed if place.position == 0}
        awaited = {blocker.chain_id for place in placed for blocker in place.blockers}
        ended = yield from cascade.fail_jobs(store, doomed, states, now)
        yield from cascade.end_chains(store, ended, now, alone=doomed.keys() <= fresh - awaited)
        records = yield from read.records(store, [record.id for record in records])
    yield from store.wake(r.queue for r in records if r.live_state in (PENDING, SCHEDULED))
    return records


def _blocker_states(store: Ground, placed: Sequence[Placed]) -> Steps[dict[int, ChainState]]:
    """State of every chain the new jobs wait for; refuse what cannot be waited for."""
    if not any(place.blockers for place in placed):
        return {}
    new = {place.id for place in placed if place.position == 0}
    wanted = {int_of(b.chain_id) for place in placed for b in place.blockers}
    states: dict[int, ChainState] = {}
    born: dict[int, int] = {}
    for chunk in chunks(sorted(wanted - new)):
        rows = yield store.sql.chain_states(chains=as_json(chunk))
        states.update((int_of(id), CHAIN_STATES[int_of(state)]) for id, state, _ in rows)
        born.update((int_of(id), int_of(created_at)) for id, _, created_at in rows)
    for place in placed:
        named: set[int] = set()
        for blocker in place.blockers:
            chain = int_of(blocker.chain_id)
            if chain in named:
                raise BlockerError(f"job {place.job.task} names chain {chain} twice as a blocker")
            named.add(chain)
            gone = blocker.created_at not in (None, born.get(chain))
            if chain == place.chain_id and not gone:
                raise BlockerError(f"job {place.job.task} cannot wait for its own chain")
            if gone or (chain not in new and chain not in states):
                raise BlockerError(
                    f"blocker chain {chain} of job {place.job.task} does not exist: "
                    "it was never stored, rolled back, deleted or pruned"
                )
    return states


def _refuse_circles(store: Ground, placed: Sequence[Placed]) -> Steps[None]:
    """Only a continuation can close a circle with stored jobs: its chain has dependents."""
    for place in placed:
        if place.position and place.blockers:
            chains = [int_of(blocker.chain_id) for blocker in place.blockers]
            if place.chain_id in (yield from store.upstream(chains, reopened=False)):
                raise BlockerError(
                    f"job {place.job.task} cannot wait for what waits for its own chain"
                )


def _take_keys(
    store: Ground, jobs: list[NewJob], order: Sequence[int], ids: Mapping[int, int], now: int
) -> Steps[dict[int, int]]:
    """Take the keys of new jobs, in the order of the keys; return who has the taken ones.

    Of several jobs with one key the first that gets it is stored. Those before it found a
    chain that was in their scope and not in its own; those after it find the first.
    """
    taken: dict[int, int] = {}
    asking: dict[tuple[str, str], list[int]] = {}
    for index in order:
        job = jobs[index]
        if job.key is not None:
            asking.setdefault((job.task, job.key), []).append(index)
    misses = 0
    while asking:
        rows: list[Row] = []
        for (task, key), indexes in sorted(asking.items()):
            job = jobs[indexes[0]]
            expired = FOREVER
            if job.scope == "any":
                expired = -1 if job.window is None else now - job.window
            rows.append((task, key, ids[indexes[0]], now, expired))
        counts: list[Row] = []
        for chunk in chunks(rows):
            counts += yield store.sql.take_key.counted(TAKE_KEY, chunk)
        for name, (won,) in zip(sorted(asking), counts, strict=True):
            indexes = asking[name]
            if won:
                first, *rest = indexes
                for index in rest:
                    job = jobs[index]
                    _refuse_taken(job, ids[first])
                    if job.on_conflict == "replace":
                        jobs[first] = replace(
                            jobs[first], arguments=job.arguments, at=job.at, delay=job.delay
                        )
                    taken[index] = ids[first]
                del asking[name]
                continue
            holder = yield store.sql.read_key(task=name[0], key=name[1])
            if not holder:  # it was deleted this moment: ask again
                misses += 1
                if misses == KEY_MISSES:
                    raise orphan(*name)
                continue
            index = indexes.pop(0)
            taken[index] = int_of(holder[0][0])
            _refuse_taken(jobs[index], taken[index])
            if jobs[index].on_conflict == "replace":
                yield from _replace(store, jobs[index], taken[index], now)
            if not indexes:
                del asking[name]
    return taken


def _replace(store: Ground, job: NewJob, job_id: int, now: int) -> Steps[None]:
    """Debounce: new arguments and time for a job that never started; else change nothing.

    All else stays: it is the stored job's place and name.
    """
    yield from store.hold_jobs([job_id])
    (record,) = yield from read.records(store, [job_id])
    if record.live_state in (None, Live.RUNNING) or record.last_number is not None:
        return  # it has ended, a worker has it, or it has started before
    run_at = due_at(job, now)
    state = Live(record.live_state)
    if state is not Live.BLOCKED:
        state = Live.SCHEDULED if run_at > now else Live.PENDING
    yield store.sql.replace_arguments(job_id=job_id, arguments=job.arguments)
    yield store.sql.move_waiting(
        state=int(state), run_at=run_at, open_blockers=record.open_blockers,
        was=record.live_state, queue=record.queue, priority=record.priority, job_id=job_id,
    )  # fmt: skip
    if state is not Live.BLOCKED:
        yield from store.wake([record.queue])


PENDING, SCHEDULED, BLOCKED = int(Live.PENDING), int(Live.SCHEDULED), int(Live.BLOCKED)


def _waits(
    place: Placed,
    states: Mapping[int, ChainState],
    edges: list[Row],
    doomed: dict[int, DependentRecord],
) -> int:
    """Add the edges of one job; return how many chains it waits for. It is doomed when one of them
    has failed and its policy is to fail, too."""
    job = place.job
    waits = 0
    for position, blocker in enumerate(place.blockers):
        chain = int_of(blocker.chain_id)
        edges.append((chain, place.id, position, blocker.name, blocker.trace))
        ended = states.get(chain, ChainState.OPEN)
        if ended in BAD:
            waits += job.policy is not Policy.RUN
            if job.policy is Policy.FAIL:
                doomed.setdefault(place.id, DependentRecord(
                    chain, place.id, place.chain_id, job.queue, job.priority,
                    int(job.policy), job.task, job.key, blocker.name,
                ))  # fmt: skip
        else:
            waits += ended is ChainState.OPEN
    return waits


def due_at(job: NewJob, now: int) -> int:
    """When a new job may start: never in the past."""
    if job.at is not None:
        return max(job.at, now)
    return now + job.delay if job.delay and job.delay > 0 else now


def orphan(task: str, key: str) -> StoreError:
    """A row that no operation leaves behind."""
    return StoreError(
        f"key {key!r} of task {task} belongs to a chain that does not exist: its row was left by a "
        "change of the tables by hand; delete it from the table of keys"
    )


def _refuse_taken(job: NewJob, holder: int) -> None:
    if job.on_conflict == "raise":
        raise DuplicateKey(f"chain {holder} already has key {job.key!r} of task {job.task}", holder)


def _resolve(job: NewJob, chains: Mapping[int, int]) -> Sequence[NewBlocker]:
    """Put chain ids in place of indexes into the batch."""
    if not job.blockers:
        return ()
    return [
        b if b.index is None else replace(b, chain_id=chains[b.index], index=None)
        for b in job.blockers
    ]


def _blockers_first(jobs: Sequence[NewJob]) -> Sequence[int]:
    """Order a batch so that each job comes after those it waits for; refuse a cycle."""
    if not any(job.blockers for job in jobs):
        return range(len(jobs))
    waiting = {
        index: {b.index for b in job.blockers if b.index is not None}
        for index, job in enumerate(jobs)
    }
    behind: dict[int, list[int]] = {}
    for index, needs in waiting.items():
        for need in needs:
            if not 0 <= need < len(jobs):
                raise BlockerError(f"job {jobs[index].task} names a blocker outside the batch")
            behind.setdefault(need, []).append(index)
    order = [index for index, needs in waiting.items() if not needs]
    for done in order:
        for index in behind.get(done, ()):
            waiting[index].discard(done)
            if not waiting[index]:
                order.append(index)
    if len(order) < len(jobs):
        stuck = sorted(jobs[i].task for i, needs in waiting.items() if needs)
        raise BlockerError(f"these calls wait for each other in a circle: {', '.join(stuck)}")
    return order
