"""A worker's lease: its one row carries everything that runs in its name.

A worker registers, renews while it lives, and says of what it holds that it began and how far it
is. A worker whose lease has run out is swept: what it held is lost, or goes back.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from itertools import starmap
from typing import NamedTuple

from msgspec import Struct, field

from ..model import Live, Outcome, storable
from ..operation import Row, Steps
from ..records import Claimed, Ending
from . import finish, gate, read
from .cascade import DELETE_LIVE
from .finish import PUT_BACK, lost_delay
from .ground import OUTSIDE, Ground, as_json, int_of
from .lane import filled, freed, tell, waiting_state

BEGIN = ("started_at", "queue", "priority", "job_id", "attempt", "held_by")
PROGRESS = ("progress", "text", "queue", "priority", "job_id", "attempt", "held_by")
SWEEP_LIMIT = 500

Report = tuple[Claimed, float | None, str | None]  # how far an attempt is
Begin = tuple[Claimed, int]  # when an attempt that was claimed ahead began


class Begun(NamedTuple):
    """What a worker had begun: complete for what was claimed since a time of the database."""

    attempts: frozenset[tuple[int, int]]  # job, attempt
    since: int = 0

    def is_without(self, job_id: int, attempt: int, claimed_at: int) -> bool:
        """Whether this attempt had certainly not begun."""
        return claimed_at >= self.since and (job_id, attempt) not in self.attempts


class Renewed(Struct):
    """A renewal's answer: whether the registration still stands, and which attempts were lost."""

    registered: bool
    lost: list[tuple[int, int]] = field(default_factory=list)
    postponed: bool = False  # another transaction looks at the registration: try again soon


class Swept(int):
    """How many jobs a sweep took back."""

    lost: list[tuple[Ending, str]]
    """Attempts of them that had begun, with the names of their workers."""

    @classmethod
    def of(cls, number: int, lost: list[tuple[Ending, str]]) -> Swept:
        swept = cls(number)
        swept.lost = lost
        return swept


class Expired(NamedTuple):
    """What a sweep would look at: workers without a lease, jobs without a worker."""

    workers: set[int]
    strays: bool


def register(
    store: Ground, name: str, host: str, pid: int, birth: str | None, version: str,
    queues: Sequence[str], concurrency: int, lease: int, number: int | None, declares: str | None,
) -> Steps[int]:  # fmt: skip
    now = yield from store.now()
    id = number or int.from_bytes(os.urandom(7)) + 1
    yield store.sql.insert_worker(
        id=id, name=name, host=host, pid=pid, birth=birth, version=version,
        queues=as_json(queues), concurrency=concurrency, now=now, lease_until=now + lease,
        declares=declares,
    )  # fmt: skip
    return id


def unregister(store: Ground, worker: int) -> Steps[None]:
    yield store.sql.remove_workers(workers=as_json([worker]))


def resize(store: Ground, worker: int, name: str, concurrency: int) -> Steps[None]:
    yield store.sql.resize_worker(concurrency=concurrency, id=worker, name=name)


def renew(
    store: Ground, worker: int, name: str, lease: int, held: Collection[tuple[int, int]]
) -> Steps[Renewed]:
    now = yield from store.now()
    ((kept,),) = yield store.sql.renew_worker.counted(
        ("now", "lease_until", "id", "name"), [(now, now + lease, worker, name)]
    )
    if not kept:
        if (yield from store.is_registered(worker, name)):
            return Renewed(True, postponed=True)
        return Renewed(False, sorted(held))
    rows = yield store.sql.find_running_of(worker=worker)
    running = {(int_of(job), int_of(attempt)) for job, attempt, *_ in rows}
    strays = [row for row in rows if (row[0], row[1]) not in held]
    if strays:
        back: list[Row] = [
            (
                int(waiting_state(None if lane is None else str(lane))), None, used, lost,
                queue, priority, job, attempt, worker,
            )
            for job, attempt, queue, priority, used, lost, lane in strays
        ]  # fmt: skip
        yield store.sql.put_back.many(PUT_BACK, back)
        laned = [(str(row[2]), str(row[6]), int_of(row[3])) for row in strays if row[6] is not None]
        yield from tell(store, [freed(queue, lane) for queue, lane, _ in laned], now)
        yield from tell(store, starmap(filled, laned), now)
        yield from store.wake(str(queue) for _, _, queue, *_ in strays)
    return Renewed(True, sorted(set(held) - running))


def running(store: Ground, worker: int) -> Steps[set[tuple[int, int]]]:
    rows = yield store.sql.find_running_of(worker=worker)
    return {(int_of(job), int_of(attempt)) for job, attempt, *_ in rows}


def still_running(store: Ground, held: Claimed) -> Steps[bool]:
    yield from store.hold_jobs([held.job_id])
    for record in (yield from read.records(store, [held.job_id])):
        fence = (record.live_state, record.attempt, record.held_by)
        return fence == (Live.RUNNING, held.attempt, held.worker)
    return False


def progress(
    store: Ground, reports: Sequence[Report], begins: Sequence[Begin]
) -> Steps[list[bool]]:
    if begins:
        yield store.sql.record_begins.many(BEGIN, [(at, *_fence(held)) for held, at in begins])
    rows: list[Row] = [(share, storable(text), *_fence(held)) for held, share, text in reports]
    counts = (yield store.sql.record_progress.counted(PROGRESS, rows)) if rows else []
    return [bool(count) for (count,) in counts]


def expired(store: Ground) -> Steps[Expired]:
    now = yield from store.now()
    rows = yield store.sql.find_expired_workers(now=now)
    strays = yield store.sql.find_lost(dead="[]", limit=1)
    return Expired({int_of(id) for (id,) in rows}, bool(strays))


def sweep(
    store: Ground,
    suspects: Collection[int] | None,
    gone: Collection[int],
    limit: int,
    begun: Mapping[int, Begun],
) -> Steps[Swept]:
    now = yield from store.now()
    expired = yield store.sql.find_expired_workers(now=now)
    dead = {int_of(id) for (id,) in expired if suspects is None or id in suspects} | set(gone)
    dead = yield from store.hold_workers(dead, gone, now)
    rows = yield store.sql.find_lost(dead=as_json(sorted(dead)), limit=limit)
    by_worker: dict[str, list[Ending]] = {}
    orphans: list[Claimed] = []
    for *claim, name, is_orphan, lane in rows:
        held = Claimed._make(claim)
        if is_orphan:
            orphans.append(held._replace(lane=None if lane is None else str(lane)))
            continue
        worker = str(name or "")
        known = begun.get(held.worker or 0)
        if known and known.is_without(held.job_id, held.attempt, held.claimed_at):
            ending = Ending(held, Outcome.RELEASED, started=False)
        else:
            reason, delay = _lost_reason(store, held, worker), lost_delay(held.lost + 1)
            ending = Ending(held, Outcome.LOST, error=reason, delay=delay)
        by_worker.setdefault(worker, []).append(ending)
    taken = yield from _drop_running(store, orphans, now)
    lost: list[tuple[Ending, str]] = []
    for worker, endings in by_worker.items():
        finished = yield from finish.finish(store, endings, worker or None, OUTSIDE)
        accepted = set(finished.accepted)
        taken += len(accepted)
        ours = [ending for ending in endings if ending.held.job_id in accepted]
        lost += [(ending, worker) for ending in ours if ending.outcome is Outcome.LOST]
    if by_worker:  # where there is a limit, another worker may have room for what comes next
        queues = {ending.held.queue for endings in by_worker.values() for ending in endings}
        yield from store.wake((yield from gate.find(store, sorted(queues))))
    if dead and len(rows) < limit:
        yield store.sql.remove_workers(workers=as_json(sorted(dead)))
    return Swept.of(taken, lost)


def _drop_running(store: Ground, orphans: Sequence[Claimed], now: int) -> Steps[int]:
    """Remove running rows that have no job; what another transaction holds stays."""
    if not orphans:
        return 0
    back: list[Row] = [
        (0, None, o.used, o.lost, o.queue, o.priority, o.job_id, o.attempt, o.worker)
        for o in orphans
    ]
    counts = yield store.sql.put_back.counted(PUT_BACK, back)
    pending: list[Row] = [(0, o.queue, o.priority, o.job_id) for o in orphans]
    yield store.sql.delete_live.many(DELETE_LIVE, pending)
    yield from tell(store, [freed(o.queue, o.lane) for o in orphans if o.lane is not None], now)
    return sum(int_of(count) for (count,) in counts)


def _lost_reason(store: Ground, held: Claimed, worker: str) -> str:
    text = f"worker {worker or 'unknown'} died or lost its lease during attempt {held.attempt}"
    if held.lost + 1 >= store.crash_limit:
        text += f"; this job has lost {held.lost + 1} workers, which is the crash limit"
    return text


def _fence(held: Claimed) -> Row:
    """The key of a running row, and the attempt and worker it must have."""
    return held.queue, held.priority, held.job_id, held.attempt, held.worker
