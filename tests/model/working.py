"""Rules of working: claims, leases, and how attempts end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.model.answers import Look, NoLater, Some, Whatever
from tests.model.limiting import Limiting
from tests.model.program import End, Held, Seen
from tests.model.tables import Attempt, Job, Worker
from towline.model import CHAIN_END, ChainState, Live, Outcome
from towline.store.ground import CRASH_LIMIT
from towline.times import to_datetime

LOST_DELAY = 1_000_000
"""How long a lost attempt waits where nothing is drawn at random; doubled by each loss."""


class Working(Limiting):
    """The verbs of a worker and its upkeep."""

    def register(self, worker: str, lease: int) -> None:
        self.tables.workers[worker] = Worker(worker, self.now, self.now, self.now + lease)

    def unregister(self, worker: str) -> None:
        """Its row stays while something still runs in its name."""
        if worker in self.tables.workers and not self.tables.running_of(worker):
            del self.tables.workers[worker]
            self.seen["unregistered"] += 1

    def claim(
        self, worker: str, queues: Sequence[str], room: int, named: bool, ahead: int
    ) -> list[Seen]:
        """None for a worker that was swept. While it finds nothing but what came too late, it goes
        on."""
        while True:
            claimed, late = self._take(worker, queues, room, named, ahead)
            if claimed or not late:
                return claimed

    def _take(
        self, worker: str, queues: Sequence[str], room: int, named: bool, ahead: int
    ) -> tuple[list[Seen], bool]:
        """L6: priority, then age. L8: none of a paused queue. G1: no more than limits allow. Y1:
        what comes too late to start has ended with that; whether there was some.

        What is claimed ahead of the free slots has not begun.
        """
        if named and worker not in self.tables.workers:
            self.seen["claim of a worker that is gone"] += 1
            return [], False
        claimed: list[Seen] = []
        begun, some_late = 0, False
        while True:
            wanted = room + ahead - len(claimed)
            free = room - begun if begun == len(claimed) else 0
            gated = self._admitted(worker, queues) if free else []
            limited = self._end_late(gated, worker, named)
            found = [job for job in gated if job.state is not None]
            ready = [j for j in self.ready() if j.queue in queues and not self.gated(j)]
            plain = ready[: wanted - len(found)]
            for place, job in enumerate(plain, len(found)):
                self._claim(job, worker, place < free)
            found += plain
            begun += sum(not self._is_late(job) for job in found[:free])
            late = self._end_late(plain, worker, named)
            claimed += [self.tables.claim_seen(job) for job in found if job.state is not None]
            some_late = some_late or limited or late
            again = limited or (late and len(found) >= wanted)
            if not again or len(claimed) >= room + ahead:
                return claimed, some_late

    def _admitted(self, worker: str, queues: Sequence[str]) -> list[Job]:
        """G1, G2, G4: of each line the first ones that its limits let begin; one that does not fit
        is waited for, and not overtaken. Programs leave room for all."""
        found: list[Job] = []
        ready = [job for job in self.ready() if job.queue in queues and self.gated(job)]
        for line in self.lines_of(ready):
            for job in line:
                if not self.admits(job):
                    self.seen["kept waiting by a limit"] += 1
                    break
                self._claim(job, worker, True)
                if not self._is_late(job):
                    self.begins(job)
                self.seen["claimed in its lane" if job.lane else "claimed under a limit"] += 1
                found.append(job)
        return sorted(found, key=lambda job: (-job.priority, job.age))

    def _claim(self, job: Job, worker: str, has_slot: bool) -> None:
        job.state, job.attempt = Live.RUNNING, job.attempt + 1
        job.claimed_at, job.worker = self.now, worker
        begins = has_slot and job.lost + 1 < CRASH_LIMIT  # else it waits to be alone
        job.started_at = self.now if begins else None
        job.progress = job.progress_text = None
        self.tables.claims.append(Held(job.name, job.attempt, worker))
        self.seen["claimed ahead" if job.is_ahead else "claimed"] += 1

    def _is_late(self, job: Job) -> bool:
        return job.expires_at is not None and job.expires_at <= self.now

    def _end_late(self, found: list[Job], worker: str, named: bool) -> bool:
        """Y1: cancelled, and without a start. Nobody has seen the claim."""
        late = [job for job in found if self._is_late(job)]
        ends: list[End] = []
        for job in late:
            self.tables.claims.pop(self.tables.claims.index(held := held_of(job, worker)))
            assert job.expires_at is not None
            reason = f"not started before {to_datetime(job.expires_at).isoformat()}"
            ends.append(End(held, Outcome.CANCELLED, error=reason, started=False))
            self.seen["came too late"] += 1
        self.finish(ends, worker if named else None)
        return bool(late)

    def running(self, held: Held) -> Job | None:
        """L3: the job, if it still runs under this attempt number and for this worker."""
        job = self.tables.jobs.get(held.name)
        if job is None or job.state is not Live.RUNNING:
            return None
        return job if (job.attempt, job.worker) == (held.attempt, held.worker) else None

    def mark_begun(self, begins: Sequence[tuple[Held, int]]) -> None:
        """What was claimed ahead runs now, for all to see; fenced (L3)."""
        for held, at in begins:
            if (job := self.running(held)) is not None:
                self.seen["begun"] += job.is_ahead
                job.started_at = at

    def turn(
        self, worker: str, queues: Sequence[str], room: int, ends: Sequence[End],
        unpark: Sequence[str], ahead: int, begins: Sequence[tuple[Held, int]],
        reports: Sequence[tuple[Held, float, str]], gated: Sequence[str],
    ) -> tuple[object, ...]:  # fmt: skip
        """Promote, record what began and how far it is, finish, unpark and claim: one
        transaction. `gated`: of which queues the worker knows that they have limits or lanes."""
        promoted = sum(self.promote(1000))
        self.mark_begun(begins)
        self.progress(reports)
        finished = self.finish(ends, worker)
        unparked = sum(self.unpark(unpark, queues, 1000)) if unpark and room else None
        claimed, _ = self._take(worker, queues, room, True, ahead)
        blockers = {
            seen["job_id"]: self.tables.blockers_seen(self.tables.jobs[seen["job_id"]])
            for seen in claimed
            if seen["blockers"] and self.tables.jobs[seen["job_id"]].after
        }
        next_due = self._next_due() if len(claimed) < room else None
        return promoted, finished, claimed, blockers, next_due, unparked

    def _next_due(self) -> object:
        """When something is due; where there are limits, a look too early does no harm."""
        due = self.tables.next_due()
        if not self.has_gates:
            return due
        times = [time for time in (due, self.opening()) if time is not None]
        return NoLater(min(times)) if times else Whatever()

    def finish(self, ends: Sequence[End], worker: str | None) -> tuple[list[str], list[str]]:
        """Record endings; whoever lost the lease changes nothing and is told (L3)."""
        if any(self.running(end.held) for end in ends):
            self.refuse_old_snapshot()
        accepted: list[str] = []
        refused: list[str] = []
        heirs: list[Job] = []
        ended: list[tuple[str, ChainState]] = []
        for end in ends:
            job = self.running(end.held)
            self.seen[f"{end.outcome} {'refused' if job is None else 'accepted'}"] += 1
            if job is None:
                refused.append(end.held.name)
                other = self.tables.jobs.get(end.held.name)
                if other and other.state is Live.RUNNING and other.attempt == end.held.attempt:
                    self.seen["refused: another worker has its number"] += 1
                continue
            accepted.append(job.name)
            if not self._ended(job, end, worker):
                continue
            if end.next is not None:
                heirs += self._family(job, end.next)
            else:
                ended.append((job.chain, CHAIN_END[end.outcome]))
        self._insert(heirs)
        self._end_chains(ended)
        return sorted(accepted), sorted(refused)

    def _ended(self, job: Job, end: End, worker: str | None) -> bool:
        """Write the attempt; True if the job is over, else it goes back (O2, O3)."""
        used, lost, over = job.used, job.lost, False
        state, run_at = Live.SCHEDULED, self.now + max(end.delay or 0, 0)
        match end.outcome:
            case Outcome.FAILED | Outcome.TIMEOUT:
                used += 1
                over = end.delay is None or used >= job.new.max_attempts
            case Outcome.LOST:
                lost += 1
                over = end.delay is None or lost >= CRASH_LIMIT
            case Outcome.RELEASED | Outcome.SNOOZED:
                pass
            case _:
                over = True
        if end.started or over:
            known = (end.started_at, job.started_at, job.claimed_at)
            started_at = next(time for time in known if time is not None) if end.started else None
            job.attempts.append(Attempt(
                job.attempt, end.outcome, over, self.now, worker, started_at, end.output,
                end.error, job.progress, job.progress_text,
                continued_by=end.next.name if end.next else None, error_type=end.error_type,
            ))  # fmt: skip
        if over:
            job.state = None
            self.seen[f"over: {end.outcome}"] += 1
        elif end.outcome is Outcome.RELEASED:
            self._put_back(job, job.waits, self.now if end.started else job.run_at)
        else:
            job.used, job.lost = used, lost
            self._put_back(job, state, run_at)
        return over

    def _put_back(self, job: Job, state: Live, run_at: int) -> None:
        job.state, job.run_at, job.parked = state, run_at, False
        job.claimed_at = job.started_at = None
        job.progress = job.progress_text = None

    def renew(
        self, worker: str, lease: int, held: Sequence[Held]
    ) -> tuple[bool, list[tuple[str, int]]]:
        """Extend the lease; say what was lost, put back what nobody knows of."""
        known = {(one.name, one.attempt) for one in held}
        row = self.tables.workers.get(worker)
        if row is None:
            self.seen["renewal of a worker that is gone"] += 1
            return False, sorted(known)
        row.seen_at, row.lease_until = self.now, self.now + lease
        running = self.tables.running_of(worker)
        strays = [job for job in running if (job.name, job.attempt) not in known]
        for job in strays:
            self._put_back(job, job.waits, job.run_at)
            self.seen["stray put back"] += 1
        lost = known - {(job.name, job.attempt) for job in running}
        return True, sorted(lost)

    def peek(
        self, queues: Sequence[str], most: int, tasks: Sequence[str]
    ) -> tuple[object, bool, object] | Look:
        """How many wait in queues that are not paused, of each up to so many; whether one of these
        tasks is set aside; what is due next. Of what is limited: whether some could begin (G3)."""
        tables = self.tables
        if self.has_gates:
            plain = [job for job in self.ready() if not self.gated(job) and job.queue in queues]
            some = plain or {queue for queue, _ in self.startable() if queue in queues}
            due = (
                self._next_due() if set(queues) >= {j.queue for j in self._heads()} else Whatever()
            )
            found = Some() if some else Whatever()
            return Look(found, bool(self._parked(tasks, queues)), due)
        pending = [job.queue for job in tables.jobs.values() if job.state is Live.PENDING]
        open_queues = [queue for queue in queues if queue not in tables.paused]
        return (
            sum(min(pending.count(queue), most) for queue in open_queues),
            bool(self._parked(tasks, queues)),
            tables.next_due(),
        )

    def drop_orphans(self, queue: str, number: int) -> int:
        """So many open rows whose jobs somebody deleted by hand, and nothing else."""
        return number

    def runs(self, worker: str) -> list[tuple[str, int]]:
        """What runs in a worker's name."""
        return sorted((job.name, job.attempt) for job in self.tables.running_of(worker))

    def still_running(self, held: Held) -> bool:
        """L3: whether an attempt is still the running one."""
        return self.running(held) is not None

    def parked(self) -> dict[str, int]:
        """L7: tasks that no worker knew, with how many jobs are set aside."""
        parked = [job for job in self.tables.jobs.values() if job.is_parked]
        return dict(Counter(job.new.task for job in parked))

    def progress(self, reports: Sequence[tuple[Held, float, str]]) -> list[bool]:
        """O9, fenced (L3)."""
        answers: list[bool] = []
        for held, share, text in reports:
            job = self.running(held)
            answers.append(job is not None)
            if job is not None:
                job.progress, job.progress_text = share, text
        return answers

    def park(self, held: Sequence[Held]) -> int:
        """L7: set aside, no attempt used."""
        parked = [job for one in held if (job := self.running(one)) is not None]
        for job in parked:
            job.state, job.parked = Live.PARKED, True
            job.claimed_at = job.started_at = None
            self.seen["parked"] += 1
        return len(parked)

    def _parked(self, tasks: Sequence[str], queues: Sequence[str]) -> list[Job]:
        return [
            job
            for job in self.tables.jobs.values()
            if job.is_parked and job.new.task in tasks and job.queue in queues
        ]

    def unpark(self, tasks: Sequence[str], queues: Sequence[str], limit: int) -> list[int]:
        """L7: pending again once a worker knows the task and serves the queue; how many, a bounded
        number at a time."""
        known = self._parked(tasks, queues)
        for job in known:
            job.state, job.parked = job.waits, False
            self.seen["unparked"] += 1
        return in_parts(len(known), limit)

    def promote(self, limit: int) -> list[int]:
        """S1: pending once its time has come."""
        due = [
            job
            for job in self.tables.jobs.values()
            if job.state is Live.SCHEDULED and job.run_at <= self.now
        ]
        for job in due:
            job.state = job.waits
            self.seen["promoted into its lane" if job.lane else "promoted"] += 1
        return in_parts(len(due), limit)

    def expired(self) -> tuple[list[str], bool]:
        """Workers without a lease, and whether jobs run for nobody who is registered."""
        tables = self.tables
        strays = any(
            job.state is Live.RUNNING and job.worker not in tables.workers
            for job in tables.jobs.values()
        )
        return sorted(w.name for w in tables.workers.values() if w.lease_until <= self.now), strays

    def sweep(
        self, suspects: Sequence[str] | None, gone: Sequence[str], limit: int,
        begun: Sequence[tuple[str, Sequence[Held]]],
    ) -> list[int]:  # fmt: skip
        """L4: what dead workers held is lost; it comes back later, or fails at the crash limit.

        What was claimed and never begun goes back untouched, where that is known (O11).
        """
        tables = self.tables
        expired, _ = self.expired()
        dead = {name for name in expired if suspects is None or name in suspects}
        dead |= set(gone)
        lost = [
            job
            for job in tables.by_age()
            if job.state is Live.RUNNING
            and (job.worker in dead or job.worker not in tables.workers)
        ]
        known = {worker: {(h.name, h.attempt) for h in held} for worker, held in begun}
        ends = [self._swept(job, known) for job in lost]
        for worker in dict.fromkeys(job.worker for job in lost):
            mine = [end for job, end in zip(lost, ends, strict=True) if job.worker == worker]
            self.finish(mine, worker if worker in tables.workers else None)
        for worker in dead:
            self.unregister(worker)
        return in_parts(len(lost), limit)

    def _swept(self, job: Job, begun: dict[str, set[tuple[str, int]]]) -> End:
        assert job.worker is not None
        held = Held(job.name, job.attempt, job.worker)
        known = begun.get(job.worker)
        if known is not None and (job.name, job.attempt) not in known:
            self.seen["swept before it began"] += 1
            return End(held, Outcome.RELEASED, started=False)
        worker = self.tables.worker_seen(job) or "unknown"
        error = f"worker {worker} died or lost its lease during attempt {job.attempt}"
        if job.lost + 1 >= CRASH_LIMIT:
            error += f"; this job has lost {job.lost + 1} workers, which is the crash limit"
        return End(held, Outcome.LOST, error=error, delay=LOST_DELAY * 2**job.lost)


def held_of(job: Job, worker: str) -> Held:
    return Held(job.name, job.attempt, worker)


def in_parts(number: int, limit: int) -> list[int]:
    """What a bounded verb answers when it is called until it finds less than it may take."""
    return [limit] * (number // limit) + [number % limit]
