"""Storing new jobs: chains, continuations, keys and blockers, in whatever transaction is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..errors import BlockerError
from ..model import ChainState, Live
from ..operation import Row, Steps
from ..records import DependentRecord, Enqueued, JobRecord, NewBlocker, NewJob
from . import cascade, edges, key, read
from .columns import JOB, new_record, row_of
from .edges import Placed
from .ground import Ground, chunks, int_of
from .key import KEY_MISSES, LINED_UP, REPLACING, TAKE_KEY
from .replacing import Replacement, replace_jobs, replaced, waits_anew

T = TypeVar("T")

PORTION = 4 * 1024 * 1024  # characters of payload per statement, which may take six bytes each
CHAIN = ("id", "task", "created_at", "trace")
LIVE = (
    "state", "queue", "priority", "job_id", "attempt", "open_blockers", "run_at", "lane", "weight",
)  # fmt: skip


Stand = tuple[int, int, int]
"""How a new job begins: its state, how many chains it waits for, and from when on it may run."""


class Batch(Struct):
    """Jobs that are stored together, by their index: who comes after whom, and each one's chain."""

    jobs: Sequence[NewJob]
    order: Sequence[int]  # each after those it waits for
    chains: dict[int, int]
    taken: dict[int, int]  # the chains that have the key already

    def placed(self, indexes: Sequence[int]) -> list[Placed]:
        """Those of them that are new."""
        taken, chains, jobs = self.taken, self.chains, self.jobs
        fresh = [i for i in indexes if i not in taken] if taken else indexes
        return [Placed(chains[i], chains[i], 0, jobs[i], self.resolved(jobs[i])) for i in fresh]

    def resolved(self, job: NewJob) -> Sequence[NewBlocker]:
        """Chain ids in place of indexes into the batch."""
        if not job.blockers:
            return ()
        return [
            b if b.index is None else replace(b, chain_id=self.chains[b.index], index=None)
            for b in job.blockers
        ]

    def replacing(self) -> list[Replacement]:
        """What replaces stored jobs, once the batch is stored: they may wait for some of it. What
        has done so at once does it again, behind those that were given before it."""
        if not any(self.jobs[index].on_conflict == "replace" for index in self.taken):
            return []
        own = {chain for index, chain in self.chains.items() if index not in self.taken}
        return [
            Replacement(chain, self.jobs[index], self.resolved(self.jobs[index]))
            for index, chain in self.taken.items()
            if self.jobs[index].on_conflict in REPLACING and chain not in own
        ]


def arrange(store: Ground, jobs: Sequence[NewJob], ids: Sequence[int], now: int) -> Steps[Batch]:
    """Give each job of a batch its id, and take the keys."""
    order = _blockers_first(jobs)
    batch = Batch(jobs, order, dict(zip(order, ids, strict=True)), {})
    if any(job.key is not None for job in jobs):
        batch.jobs = changed = list(jobs)
        if any(job.key is not None and waits_anew(job) for job in jobs):
            keys = {(job.task, job.key) for job in jobs if job.on_conflict in REPLACING}
            coming = {b.chain_id for job in jobs for b in job.blockers if b.chain_id is not None}
            yield from store.hold_for_replacing(keys, coming)
        batch.taken = yield from _take_keys(store, changed, order, batch.chains, now)
        batch.chains.update(batch.taken)
    return batch


def enqueue(store: Ground, jobs: Sequence[NewJob]) -> Steps[Sequence[Enqueued]]:
    if not jobs:
        return []
    now = yield from store.now()
    ids = yield from store.new_ids(len(jobs))
    batch = yield from arrange(store, jobs, ids, now)
    taken = batch.taken
    records: dict[int, JobRecord] = {}
    for part in chunks(batch.order):
        fresh = [i for i in part if i not in taken] if taken else part
        placed = batch.placed(fresh)
        stored = yield from insert(store, placed, now, answer=True)
        records.update(zip(fresh, stored, strict=True))
    yield from replace_jobs(store, batch.replacing(), now)
    for index, chain in taken.items():
        tail = yield from read.tail(store, chain)
        assert tail is not None
        records[index] = tail
    return [Enqueued(records[index], index not in taken) for index in range(len(jobs))]


def insert(
    store: Ground, placed: Sequence[Placed], now: int, *, answer: bool = False
) -> Steps[list[JobRecord]]:
    """Write the rows of new jobs. A job with open blockers is blocked, one whose time has not
    come is scheduled, any other is pending at once. One behind a failure follows its policy.

    `answer`: their records come back, in the order given.
    """
    waiting = edges.that_wait_for_others(placed)
    if waiting:  # chains that go on with a job that waits; what waits for them must see it
        yield from store.hold_chains(place.chain_id for place in waiting)
    states: dict[int, ChainState] = {}
    born: set[int] = set()
    if any(place.blockers for place in placed):
        born = {place.id for place in placed if place.position == 0}
        states = yield from edges.chain_states(store, placed, born)
    records: list[JobRecord] = []
    doomed: dict[int, DependentRecord] = {}
    told: list[Row] = []
    ready: set[str] = set()
    # Rows of one part at a time: a large batch, or one of large arguments, stays small.
    for part in portions(placed, lambda place: len(place.job.arguments)):
        awaited: list[Row] = []
        stands = [_stand(place, states, awaited, doomed, now) for place in part]
        yield from _insert_rows(store, (yield from store.insert_runs(part, stands, now)), now)
        yield from store.insert_edges(awaited)
        for place, (state, waits, run_at) in zip(part, stands, strict=True):
            if state != BLOCKED:
                ready.add(place.job.queue)
            if state == IN_LANE:
                told.append((place.job.queue, place.job.priority, place.job.lane))
            if answer:
                records.append(new_record(*_row(place, now), state, 0, 0, 0, waits, run_at))
    yield from edges.refuse_circles(store, waiting)
    if doomed:
        behind = {blocker.chain_id for place in placed for blocker in place.blockers}
        ended = yield from cascade.fail_jobs(store, doomed, states, now)
        yield from cascade.end_chains(store, ended, now, alone=doomed.keys() <= born - behind)
        if answer:
            records = yield from read.records(store, [record.id for record in records])
    if told:
        yield from store.tell_filled(told, now)
    yield from store.wake(ready)
    return records


def _stand(
    place: Placed,
    states: Mapping[int, ChainState],
    awaited: list[Row],
    doomed: dict[int, DependentRecord],
    now: int,
) -> Stand:
    """How a new job begins; its edges, and whether it is doomed, are noted."""
    job = place.job
    waits = edges.waits(place, states, awaited, doomed) if place.blockers else 0
    run_at = job.due(now)
    if waits:
        return BLOCKED, waits, run_at
    if run_at > now:
        return SCHEDULED, 0, run_at
    return (PENDING if job.lane is None else IN_LANE), 0, run_at


def _row(place: Placed, now: int) -> Row:
    job = place.job
    if job.expires is not None:
        job = replace(job, expires_at=now + job.expires)
    return row_of(job, place.id, place.chain_id, place.position, len(place.blockers), now)


def _insert_rows(store: Ground, some: Sequence[tuple[Placed, Stand]], now: int) -> Steps[None]:
    """A row in each table for each of these jobs."""
    if not some:
        return
    chains: list[Row] = []
    lives: list[Row] = []
    for place, (state, waits, run_at) in some:
        job = place.job
        if place.position == 0:
            chains.append((place.id, job.task, now, job.trace))
        lives.append((
            state, job.queue, job.priority, place.id, 0, waits, run_at, job.lane, job.weight,
        ))  # fmt: skip
    if chains:
        yield store.sql.insert_chains.many(CHAIN, chains)
    yield store.sql.insert_jobs.many(JOB, [_row(place, now) for place, _ in some])
    yield store.sql.insert_live.many(LIVE, lives)


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
    for name in sorted(asking):
        indexes = asking[name]
        if any(jobs[index].on_conflict in LINED_UP for index in indexes):
            own = [ids[index] for index in asking.pop(name)]
            taken |= yield from key.take_in_line(store, jobs, name, indexes, own, now)
    misses = 0
    while asking:
        rows: list[Row] = []
        for (task, text), indexes in sorted(asking.items()):
            job = jobs[indexes[0]]
            rows.append((task, text, ids[indexes[0]], now, key.expired_of(job, now)))
        counts: list[Row] = []
        for chunk in chunks(rows):
            counts += yield store.sql.take_key.counted(TAKE_KEY, chunk)
        for name, (won,) in zip(sorted(asking), counts, strict=True):
            indexes = asking[name]
            if won:
                first, *rest = indexes
                for index in rest:
                    job = jobs[index]
                    key.refuse_taken(job, ids[first])
                    if job.on_conflict == "replace":
                        jobs[first] = replaced(jobs[first], job)
                    taken[index] = ids[first]
                del asking[name]
                continue
            holder = yield store.sql.read_key(task=name[0], key=name[1])
            if not holder:  # it was deleted this moment: ask again
                misses += 1
                if misses == KEY_MISSES:
                    raise key.orphan(*name)
                continue
            index = indexes.pop(0)
            taken[index] = int_of(holder[0][0])
            key.refuse_taken(jobs[index], taken[index])
            if not indexes:
                del asking[name]
    return taken


PENDING, SCHEDULED, BLOCKED = int(Live.PENDING), int(Live.SCHEDULED), int(Live.BLOCKED)
IN_LANE = int(Live.PARKED)


def _blockers_first(jobs: Sequence[NewJob]) -> Sequence[int]:
    """Order a batch so that each job comes after those it waits for; refuse a cycle."""
    lines = _lines(jobs)
    if not lines and not any(job.blockers for job in jobs):
        return range(len(jobs))
    waiting = {
        index: {b.index for b in job.blockers if b.index is not None} | lines.get(index, set())
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


def _lines(jobs: Sequence[NewJob]) -> Mapping[int, set[int]]:
    """Of those that share their key with others of the batch, where one goes behind another or
    replaces it: the one before each, and of each that is replaced what it is to wait for."""
    lines: dict[int, set[int]] = {}
    same: dict[tuple[str, str], list[int]] = {}
    changing: set[tuple[str, str]] = set()
    for index, job in enumerate(jobs):
        if job.key is not None:
            same.setdefault((job.task, job.key), []).append(index)
            if job.on_conflict in LINED_UP or job.on_conflict in REPLACING:
                changing.add((job.task, job.key))
    for name in changing:
        first = same[name][0]  # of those that become one chain
        for before, index in pairwise(same[name]):
            job = jobs[index]
            lines.setdefault(index, set()).add(before)
            if job.on_conflict == "after":
                first = index
            elif "blockers" in job.given:
                needs = {b.index for b in job.blockers if b.index is not None}
                lines.setdefault(first, set()).update(needs)
    return lines


def portions(rows: Sequence[T], size: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """As many rows at a time as one statement may have: in number, and in characters of what
    `size` counts, since each goes through several copies on its way."""
    for part in chunks(rows):
        if sum(map(size, part)) <= PORTION:
            yield part
            continue
        start = room = 0
        for number, row in enumerate(part):
            room += size(row)
            if room > PORTION and number > start:
                yield part[start:number]
                start, room = number, size(row)
        yield part[start:]
