"""Rules of working: claims, leases, and how attempts end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.model.program import End, Held, Seen
from tests.model.storing import Storing
from tests.model.tables import Attempt, Job, Worker
from towline.model import CHAIN_END, END_STATE, ChainState, Live, Outcome
from towline.store.finish import CRASH_LIMIT

LOST_DELAY = 1_000_000
"""How long a lost attempt waits where nothing is drawn at random; doubled by each loss."""


class Working(Storing):
    """The verbs of a worker and its upkeep."""

    def register(self, worker: str, lease: int) -> None:
        self.tables.workers[worker] = Worker(worker, self.now, self.now, self.now + lease)

    def unregister(self, worker: str) -> None:
        """Its row stays while something still runs in its name."""
        if worker in self.tables.workers and not self.tables.running_of(worker):
            del self.tables.workers[worker]
            self.tables.former_workers.append(worker)
            self.seen["unregistered"] += 1

    def claim(self, worker: str, queues: Sequence[str], room: int, named: bool) -> list[Seen]:
        """L6: priority, then age. L8: none of a paused queue. None for a worker that was swept."""
        tables = self.tables
        if named and worker not in tables.workers:
            self.seen["claim of a worker that is gone"] += 1
            return []
        ready = [
            job
            for job in sorted(tables.jobs.values(), key=lambda job: (-job.priority, job.age))
            if job.state is Live.PENDING and job.queue in queues and job.queue not in tables.paused
        ][:room]
        for job in ready:
            job.state, job.attempt = Live.RUNNING, job.attempt + 1
            job.claimed_at, job.worker = self.now, worker
            job.progress = job.progress_text = None
            tables.claims.append(Held(job.name, job.attempt, worker))
            self.seen["claimed"] += 1
        return [tables.claim_seen(job) for job in ready]

    def running(self, held: Held) -> Job | None:
        """L3: the job, if it still runs under this attempt number."""
        job = self.tables.jobs.get(held.name)
        if job is None or job.state is not Live.RUNNING or job.attempt != held.attempt:
            return None
        return job

    def turn(
        self, worker: str, queues: Sequence[str], room: int, ends: Sequence[End],
        unpark: Sequence[str],
    ) -> tuple[object, ...]:  # fmt: skip
        """Promote, finish, unpark and claim: one transaction."""
        promoted = sum(self.promote(1000))
        finished = self.finish(ends, worker)
        unparked = sum(self.unpark(unpark, 1000)) if unpark and room else None
        claimed = self.claim(worker, queues, room, True)
        blockers = {
            seen["job_id"]: self.tables.blockers_seen(self.tables.jobs[seen["job_id"]])
            for seen in claimed
            if seen["blockers"] and self.tables.jobs[seen["job_id"]].after
        }
        next_due = self.tables.next_due() if len(claimed) < room else None
        return promoted, finished, claimed, blockers, next_due, unparked

    def finish(self, ends: Sequence[End], worker: str | None) -> tuple[list[str], list[str]]:
        """Record endings; whoever lost the lease changes nothing and is told (L3)."""
        accepted: list[str] = []
        refused: list[str] = []
        heirs: list[Job] = []
        ended: list[tuple[str, ChainState]] = []
        for end in ends:
            job = self.running(end.held)
            self.seen[f"{end.outcome} {'refused' if job is None else 'accepted'}"] += 1
            if job is None:
                refused.append(end.held.name)
                continue
            accepted.append(job.name)
            if not self._ended(job, end, worker):
                continue
            if end.next is not None:
                heirs.append(self._heir(job, end.next))
            else:
                ended.append((job.chain, CHAIN_END[END_STATE[end.outcome]]))
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
        if end.started:
            started_at = job.claimed_at if end.started_at is None else end.started_at
            job.attempts.append(Attempt(
                job.attempt, end.outcome, over, self.now, worker, started_at, end.output,
                end.error, job.progress, job.progress_text,
                continued_by=end.next.name if end.next else None,
            ))  # fmt: skip
        if over:
            job.state = None
            self.seen[f"over: {end.outcome}"] += 1
        elif end.outcome is Outcome.RELEASED:
            self._put_back(job, Live.PENDING, None)
        else:
            job.used, job.lost = used, lost
            self._put_back(job, state, run_at)
        return over

    def _put_back(self, job: Job, state: Live, run_at: int | None) -> None:
        job.state, job.run_at, job.claimed_at = state, run_at, None
        job.progress = job.progress_text = None

    def renew(
        self, worker: str, lease: int, held: Sequence[Held]
    ) -> tuple[bool, list[tuple[str, int]], int]:
        """Extend the lease; say what was lost, put back what nobody knows of."""
        known = {(one.name, one.attempt) for one in held}
        row = self.tables.workers.get(worker)
        if row is None:
            self.seen["renewal of a worker that is gone"] += 1
            return False, sorted(known), 0
        row.seen_at, row.lease_until = self.now, self.now + lease
        running = self.tables.running_of(worker)
        strays = [job for job in running if (job.name, job.attempt) not in known]
        for job in strays:
            self._put_back(job, Live.PENDING, None)
            self.seen["stray put back"] += 1
        lost = known - {(job.name, job.attempt) for job in running}
        return True, sorted(lost), len(strays)

    def peek(self, queues: Sequence[str], most: int) -> tuple[int, int | None]:
        """How many wait in queues that are not paused, of each up to so many; what is due next."""
        tables = self.tables
        pending = [job.queue for job in tables.jobs.values() if job.state is Live.PENDING]
        open_queues = [queue for queue in queues if queue not in tables.paused]
        return sum(min(pending.count(queue), most) for queue in open_queues), tables.next_due()

    def runs(self, worker: str) -> list[tuple[str, int]]:
        """What runs in a worker's name."""
        return sorted((job.name, job.attempt) for job in self.tables.running_of(worker))

    def fence(self, held: Held) -> bool:
        """L3: whether an attempt is still the running one."""
        return self.running(held) is not None

    def parked(self) -> dict[str, int]:
        """L7: tasks that no worker knew, with how many jobs are set aside."""
        parked = [job for job in self.tables.jobs.values() if job.state is Live.PARKED]
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
            job.state, job.claimed_at = Live.PARKED, None
            self.seen["parked"] += 1
        return len(parked)

    def unpark(self, tasks: Sequence[str], limit: int) -> list[int]:
        """L7: pending again once a worker knows the task; how many, a bounded number at a time."""
        known = [
            job
            for job in self.tables.jobs.values()
            if job.state is Live.PARKED and job.new.task in tasks
        ]
        for job in known:
            job.state = Live.PENDING
            self.seen["unparked"] += 1
        return in_parts(len(known), limit)

    def promote(self, limit: int) -> list[int]:
        """S1: pending once its time has come."""
        due = [
            job
            for job in self.tables.jobs.values()
            if job.state is Live.SCHEDULED and (job.run_at or 0) <= self.now
        ]
        for job in due:
            job.state = Live.PENDING
            self.seen["promoted"] += 1
        return in_parts(len(due), limit)

    def expired(self) -> list[str]:
        return sorted(w.name for w in self.tables.workers.values() if w.lease_until <= self.now)

    def sweep(self, suspects: Sequence[str] | None, gone: Sequence[str], limit: int) -> list[int]:
        """L4: what dead workers held is lost; it comes back later, or fails at the crash limit."""
        tables = self.tables
        dead = {name for name in self.expired() if suspects is None or name in suspects}
        dead |= set(gone)
        lost = [
            job
            for job in tables.by_age()
            if job.state is Live.RUNNING
            and (job.worker in dead or job.worker not in tables.workers)
        ]
        ends = [self._lost(job) for job in lost]
        for worker in dict.fromkeys(job.worker for job in lost):
            mine = [end for job, end in zip(lost, ends, strict=True) if job.worker == worker]
            self.finish(mine, worker if worker in tables.workers else None)
        for worker in dead:
            self.unregister(worker)
        return in_parts(len(lost), limit)

    def _lost(self, job: Job) -> End:
        worker = self.tables.worker_seen(job) or "unknown"
        error = f"worker {worker} died or lost its lease during attempt {job.attempt}"
        if job.lost + 1 >= CRASH_LIMIT:
            error += f"; this job has lost {job.lost + 1} workers, which is the crash limit"
        held = Held(job.name, job.attempt, worker)
        return End(held, Outcome.LOST, error=error, delay=LOST_DELAY * 2**job.lost)


def in_parts(number: int, limit: int) -> list[int]:
    """What a bounded verb answers when it is called until it finds less than it may take."""
    return [limit] * (number // limit) + [number % limit]
