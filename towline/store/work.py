"""A worker's operations: register, claim, renew, progress, park, promote, sweep, and the turn.

scheduled ──promote──► pending ──claim──► running ──finish──► ended, or back
                          ▲                  │ park (task unknown here)
                          └──unpark── parked ◄┘

A worker claims for its free slots, and sometimes ahead of them. What is claimed ahead is shown as
pending until it begins; it goes back untouched when its worker dies before that.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model import (
    Begun,
    BlockerRecord,
    Claimed,
    Ending,
    Finished,
    Live,
    Outcome,
    WorkerRecord,
    storable,
    unknown_task,
)
from ..operation import Op, Steps, compose, operation
from ..sql import Row
from .base import as_json, int_of
from .cascade import DELETE_LIVE
from .finish import PUT_BACK, Finish, lost_delay

CLAIM = ("attempt", "now", "started_at", "worker", "queue", "priority", "job_id")
KEY = ("queue", "priority", "job_id")
PARK = ("parked_for", "queue", "priority", "job_id", "attempt", "held_by")
BEGIN = ("started_at", "queue", "priority", "job_id", "attempt", "held_by")
PROGRESS = ("progress", "text", "queue", "priority", "job_id", "attempt", "held_by")
PROMOTE_LIMIT = 1000
SWEEP_LIMIT = 500
UNPARK_LIMIT = 1000
ORPHAN_LIMIT = 1000

Report = tuple[Claimed, float | None, str | None]  # how far an attempt is
Begin = tuple[Claimed, int]  # when an attempt that was claimed ahead began


@dataclass(slots=True)
class Renewed:
    """A renewal's answer: whether the registration still stands, and which attempts were lost."""

    registered: bool
    lost: list[tuple[int, int]] = field(default_factory=list)
    released: int = 0
    postponed: bool = False  # somebody looks at the registration just now: try again soon


class Ahead(NamedTuple):
    """What a worker finds when it looks: work for it now, or a time at which to look again."""

    pending: int
    parked: bool  # a job that some other worker did not know, and this one does
    next_due: int | None
    now: int


class Expired(NamedTuple):
    """What a sweep would look at: workers without a lease, jobs without a worker."""

    workers: list[WorkerRecord]
    strays: bool


@dataclass(slots=True)
class Turn:
    """One beat of a worker: what was finished and claimed, and when to look again.

    Of what was claimed the first ones are for the slots that were free, the others ahead of them.
    """

    finished: Finished
    claimed: list[Claimed]
    blockers: dict[int, list[BlockerRecord]]
    promoted: int
    next_due: int | None
    now: int
    unparked: int | None = None  # of those asked for; None when there was no room to ask


class Work(Finish):
    """Operations of a worker and its upkeep."""

    @operation(durable=False)
    def register(
        self, name: str, *, host: str, pid: int, birth: str | None, version: str,
        queues: Sequence[str], concurrency: int, lease: int, number: int | None = None,
    ) -> Steps[int]:  # fmt: skip
        """Enter a worker and return its number. Everything it claims hangs on this one lease.

        The number is drawn by lot, unless it is given: one from a counter would be given out again
        by a database that has lost its last commits, and with it the fence of who had it before.
        """
        now = yield from self.now()
        id = number or secrets.randbits(62) + 1
        yield self.sql.insert_worker(
            id=id, name=name, host=host, pid=pid, birth=birth, version=version,
            queues=as_json(queues), concurrency=concurrency, now=now, lease_until=now + lease,
        )  # fmt: skip
        return id

    @operation(durable=False)
    def unregister(self, worker: int) -> Steps[None]:
        """Take a worker out; its row stays while something still runs in its name."""
        yield self.sql.remove_workers(workers=as_json([worker]))

    def turn(
        self, worker: int, name: str, queues: Sequence[str], room: int,
        endings: Sequence[Ending] = (), unpark: Sequence[str] = (), *,
        ahead: int = 0, begins: Sequence[Begin] = (), reports: Sequence[Report] = (),
    ) -> Op[Turn]:  # fmt: skip
        """Promote what is due, finish what ended, claim what fits: one transaction.

        `room` slots are free, and so many jobs more are claimed `ahead` of those that run. What
        began meanwhile of those, and the last reports of what ended, are recorded on the way.

        Parked jobs of the tasks to unpark come back as many as fit, in the same transaction: else
        workers that do not know them would set them aside again before they are claimed.

        A worker that was swept meanwhile finishes and claims nothing; its renewal tells it.

        Only a turn that finishes something must survive a power cut; the others may be lost.
        """

        def steps() -> Steps[Turn]:
            now = yield from self.now()
            promoted = yield from self.promote()
            if begins:
                yield from self.mark_begun(begins)
            if reports:
                yield from self.progress(reports)
            finished = yield from self.finish(endings, name, worker)
            unparked = None
            if unpark and room > 0:
                unparked = yield from self.unpark(unpark, queues, room)
            claimed = yield from self.claim(worker, queues, room, name, ahead)
            waited = [job.job_id for job in claimed if job.blockers]
            blockers = yield from self.blockers(waited)
            next_due = None
            if len(claimed) < room:
                next_due = yield from self.next_due()
            return Turn(finished, claimed, blockers, promoted, next_due, now, unparked)

        return compose("turn", steps, durable=bool(endings))

    @operation(durable=False)
    def claim(
        self,
        worker: int,
        queues: Sequence[str],
        room: int,
        name: str | None = None,
        ahead: int = 0,
    ) -> Steps[list[Claimed]]:
        """Take up to `room` pending jobs: higher priority first, then age. Paused queues give none.

        Up to `ahead` more are taken, which are not seen running before they begin.

        Each claim gives out the job's next attempt number, which is never given out again. A
        worker that gives its name and is no longer registered under it claims nothing.
        """
        if room + ahead <= 0 or not queues:
            return []
        now = yield from self.now()
        claimed = yield from self.take_pending(worker, queues, room + ahead, room, name, now)
        return sorted(claimed, key=_claim_order)

    def take_pending(
        self, worker: int, queues: Sequence[str], room: int, free: int, name: str | None, now: int
    ) -> Steps[list[Claimed]]:
        """pending → running, in any order; the first `free` in order of claiming begin at once, but
        not those that one more loss would fail: they wait until nothing else runs beside them."""
        rows = yield self.sql.find_pending(
            now=now, worker=worker, name=name, queues=as_json(queues), room=room
        )
        claimed = sorted((Claimed._make(row) for row in rows), key=_claim_order)
        safe = self.crash_limit - 1
        updates: list[Row] = [
            (
                job.attempt, now, now if place < free and job.lost < safe else None, worker,
                job.queue, job.priority, job.job_id,
            )
            for place, job in enumerate(claimed)
        ]  # fmt: skip
        if updates:
            yield self.sql.claim_jobs.many(CLAIM, updates)
        return claimed

    @operation(durable=False)
    def promote(self, limit: int = PROMOTE_LIMIT) -> Steps[int]:
        """Make scheduled jobs pending whose time has come, oldest first, a bounded number."""
        now = yield from self.now()
        rows = yield self.sql.find_due(now=now, limit=limit)
        if rows:
            yield self.sql.promote_jobs.many(KEY, rows)
        return len(rows)

    @operation(reads=True)
    def next_due(self) -> Steps[int | None]:
        """When the next scheduled job is due, in microseconds; None when nothing is scheduled."""
        ((run_at,),) = yield self.sql.next_due()
        return None if run_at is None else int_of(run_at)

    @operation(reads=True)
    def peek(self, queues: Sequence[str], most: int = 1, tasks: Sequence[str] = ()) -> Steps[Ahead]:
        """Whether a claim would find something, without taking the writer; and what is due next.

        Pending jobs are counted up to `most` of each queue. Parked ones of these tasks come back
        by a turn that unparks them.
        """
        now = yield from self.now()
        ((found, parked),) = yield self.sql.peek_pending(
            queues=as_json(queues), most=most, reasons=as_json(map(unknown_task, tasks))
        )
        ((run_at,),) = yield self.sql.next_due()
        due = None if run_at is None else int_of(run_at)
        return Ahead(int_of(found), bool(parked), due, now)

    @operation(durable=False)
    def drop_orphans(self, queues: Sequence[str]) -> Steps[int]:
        """Remove rows at the head of these queues whose job is gone; return how many.

        Nothing of ours leaves such rows, but somebody may have deleted jobs by hand: as many as
        fit into a turn would keep all that is behind them from being claimed.
        """
        rows = yield self.sql.find_orphans(queues=as_json(queues), limit=ORPHAN_LIMIT)
        if rows:
            yield self.sql.delete_live.many(DELETE_LIVE, rows)
            yield from self.wake(queues)
        return len(rows)

    @operation(durable=False)
    def mark_begun(self, begins: Sequence[Begin]) -> Steps[None]:
        """Record that attempts which were claimed ahead have begun."""
        rows: list[Row] = [
            (at, held.queue, held.priority, held.job_id, held.attempt, held.worker)
            for held, at in begins
        ]
        yield self.sql.record_begins.many(BEGIN, rows)

    @operation(reads=True)
    def running(self, worker: int) -> Steps[set[tuple[int, int]]]:
        """What runs in a worker's name, as (job, attempt)."""
        rows = yield self.sql.find_running_of(worker=worker)
        return {(int_of(job), int_of(attempt)) for job, attempt, *_ in rows}

    @operation(durable=False)
    def renew(
        self, worker: int, name: str, lease: int, held: Collection[tuple[int, int]]
    ) -> Steps[Renewed]:
        """Extend the lease of everything a worker holds, by its one row.

        Says which of the held (job, attempt) are no longer the worker's, and puts back what runs
        in its name without its knowledge: nothing is orphaned inside a living worker.
        """
        now = yield from self.now()
        ((kept,),) = yield self.sql.renew_worker.counted(
            ("now", "lease_until", "id", "name"), [(now, now + lease, worker, name)]
        )
        if not kept:
            if (yield from self.is_registered(worker, name)):
                return Renewed(True, postponed=True)
            return Renewed(False, sorted(held))
        rows = yield self.sql.find_running_of(worker=worker)
        running = {(int_of(job), int_of(attempt)) for job, attempt, *_ in rows}
        strays: list[Row] = [
            (0, None, used, lost, queue, priority, job, attempt, worker)
            for job, attempt, queue, priority, used, lost in rows
            if (job, attempt) not in held
        ]
        if strays:
            yield self.sql.put_back.many(PUT_BACK, strays)
            yield from self.wake(str(queue) for _, _, queue, *_ in rows)
        return Renewed(True, sorted(set(held) - running), len(strays))

    @operation()
    def fence(self, held: Claimed) -> Steps[bool]:
        """Whether an attempt is still the running one; it stays so until the commit."""
        yield from self.hold_jobs([held.job_id])
        for record in (yield from self.records([held.job_id])):
            fence = (record.live_state, record.attempt, record.held_by)
            return fence == (Live.RUNNING, held.attempt, held.worker)
        return False

    @operation(durable=False)
    def progress(self, reports: Sequence[Report]) -> Steps[list[bool]]:
        """Record how far attempts are, for others to see; say which were still the worker's."""
        rows: list[Row] = [
            (
                share,
                storable(text),
                held.queue,
                held.priority,
                held.job_id,
                held.attempt,
                held.worker,
            )
            for held, share, text in reports
        ]
        counts = (yield self.sql.record_progress.counted(PROGRESS, rows)) if rows else []
        return [bool(count) for (count,) in counts]

    @operation(durable=False)
    def park(self, jobs: Sequence[Claimed]) -> Steps[int]:
        """Set claimed jobs aside whose task this worker does not know; no attempt is used."""
        rows: list[Row] = [
            (unknown_task(j.task), j.queue, j.priority, j.job_id, j.attempt, j.worker) for j in jobs
        ]
        counts = (yield self.sql.park_jobs.counted(PARK, rows)) if rows else []
        yield from self.wake(j.queue for j in jobs)  # somebody else may know it
        return sum(int_of(count) for (count,) in counts)

    @operation(durable=False)
    def unpark(
        self, tasks: Sequence[str], queues: Sequence[str], limit: int = UNPARK_LIMIT
    ) -> Steps[int]:
        """Make parked jobs of these tasks pending again, a bounded number; call until it says 0."""
        reasons = as_json(map(unknown_task, tasks))
        rows = yield self.sql.find_parked(reasons=reasons, queues=as_json(queues), limit=limit)
        if rows:
            yield self.sql.unpark_jobs.many(KEY, rows)
            yield from self.wake(str(queue) for queue, *_ in rows)
        return len(rows)

    @operation(reads=True)
    def expired(self) -> Steps[Expired]:
        """Workers whose lease has run out: suspects for a sweep; and whether jobs run in the name
        of a worker that is not registered at all."""
        now = yield from self.now()
        rows = yield self.sql.find_expired_workers(now=now)
        strays = yield self.sql.find_lost(dead="[]", limit=1)
        return Expired([WorkerRecord._make(row) for row in rows], bool(strays))

    @operation()
    def sweep(
        self,
        suspects: Collection[int] | None = None,
        gone: Collection[int] = (),
        limit: int = SWEEP_LIMIT,
        begun: Mapping[int, Begun] | None = None,
    ) -> Steps[int]:
        """Take back the jobs of dead workers, a bounded number; return how many.

        Dead is: the lease has run out *and* it was a suspect before (all are when suspects is
        None), or the process is provably gone. A lost attempt is recorded; its
        job comes back after a wide jitter, or fails at the crash limit.

        `begun` says of workers which attempts they had begun, where that is known: what is not
        among them goes back as if it had never been claimed.
        """
        now = yield from self.now()
        expired = yield self.sql.find_expired_workers(now=now)
        dead = {int_of(id) for id, *_ in expired if suspects is None or id in suspects} | set(gone)
        dead = yield from self.hold_workers(dead, gone, now)
        rows = yield self.sql.find_lost(dead=as_json(sorted(dead)), limit=limit)
        by_worker: dict[str, list[Ending]] = {}
        for *claim, name in rows:
            held = Claimed._make(claim)
            worker = str(name or "")
            known = (begun or {}).get(held.worker or 0)
            if known and known.is_without(held.job_id, held.attempt, held.claimed_at):
                ending = Ending(held, Outcome.RELEASED, started=False)
            else:
                reason, delay = self._lost_reason(held, worker), lost_delay(held.lost + 1)
                ending = Ending(held, Outcome.LOST, error=reason, delay=delay)
            by_worker.setdefault(worker, []).append(ending)
        taken = 0
        for worker, endings in by_worker.items():
            taken += len((yield from self.finish(endings, worker or None)).accepted)
        if dead and len(rows) < limit:
            yield self.sql.remove_workers(workers=as_json(sorted(dead)))
        return taken

    def _lost_reason(self, held: Claimed, worker: str) -> str:
        text = f"worker {worker or 'unknown'} died or lost its lease during attempt {held.attempt}"
        if held.lost + 1 >= self.crash_limit:
            text += f"; this job has lost {held.lost + 1} workers, which is the crash limit"
        return text

    @operation(reads=True)
    def blockers(self, jobs: Sequence[int]) -> Steps[dict[int, list[BlockerRecord]]]:
        """What jobs wait or waited for, in declared order, with each chain's output or error."""
        if not jobs:
            return {}
        found: dict[int, list[BlockerRecord]] = {}
        for row in (yield self.sql.list_blockers(jobs=as_json(jobs))):
            record = BlockerRecord._make(row)
            found.setdefault(record.job_id, []).append(record)
        return found


def _claim_order(job: Claimed) -> tuple[int, int]:
    return -job.priority, job.job_id
