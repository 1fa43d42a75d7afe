"""Rules of control: ending from outside, running now, retrying, pausing."""

from __future__ import annotations

from dataclasses import replace

from tests.model.program import New, Seen
from tests.model.storing import named
from tests.model.tables import Attempt, Job, Key, is_bad
from tests.model.working import Working
from towline.errors import DuplicateKey, InvalidState, NotFound
from towline.model import CHAIN_END, ChainState, Live, Outcome, Policy, State

OVER = (State.FAILED, State.CANCELLED)


class Controlling(Working):
    """The verbs of people."""

    # ---- ending from outside (K1, K3)

    def cancel(self, name: str, reason: str | None, by: str | None) -> Seen:
        return self._end(name, Outcome.CANCELLED, error=reason, by=by)

    def fail(self, name: str, reason: str, by: str | None) -> Seen:
        return self._end(name, Outcome.FAILED, error=reason, by=by)

    def complete(self, name: str, output: str | None, next: New | None, by: str | None) -> Seen:
        outcome = Outcome.COMPLETED if next is None else Outcome.CONTINUED
        return self._end(name, outcome, output=output, next=next, by=by)

    def _end(
        self, name: str, outcome: Outcome, *, output: str | None = None, error: str | None = None,
        next: New | None = None, by: str | None = None,
    ) -> Seen:  # fmt: skip
        """End an open job; the attempt that runs is cancelled, or cut short by another end."""
        job = self._addressed(name)
        if job.state is None:
            raise InvalidState
        stands = "claimed ahead" if job.is_ahead else job.state.name.lower()
        self.seen[f"{outcome} from outside while {stands}"] += 1
        by, before = by or "outside", self._before(job)
        if job.state is Live.RUNNING and not job.is_ahead:
            attempt = Attempt(
                job.attempt, Outcome.CANCELLED, True, self.now, self.tables.worker_seen(job),
                job.started_at, error=error, progress=job.progress,
                progress_text=job.progress_text,
            )  # fmt: skip
            job.attempts.append(attempt)
            if outcome is not Outcome.CANCELLED:
                attempt.outcome, attempt.final = Outcome.LOST, False
                attempt.error = f"{outcome} from outside by {by} during this attempt"
                attempt = Attempt(job.attempt + 1, outcome, True, self.now)
                job.attempts.append(attempt)
            job.state = None
        else:
            attempt = self._end_waiting(job, outcome)
        attempt.output, attempt.error, attempt.ended_by = output, error, by
        if next is None:
            if before is not None:
                self._close_up(job, before)
            self._end_chains([(job.chain, CHAIN_END[outcome])])
        else:
            attempt.continued_by = next.name
            if before is not None:  # what follows waits in its place
                self.seen["stays in its line"] += 1
                policy = job.policy if next.policy is Policy.FAIL else next.policy
                next = replace(next, line=before.name, policy=policy)
            self._insert(self._family(job, next))
        return self.tables.job_seen(job)

    def _addressed(self, name: str) -> Job:
        """The first job of a chain that went on stands for the chain: its last job."""
        job = self._one(name)
        self.refuse_old_snapshot()
        if job.state is None and job.position == 0 and job.last and job.last.continued_by:
            return self.tables.tail(job.chain)
        return job

    def _one(self, name: str) -> Job:
        if name not in self.tables.jobs:
            raise NotFound
        return self.tables.jobs[name]

    # ---- waiting jobs

    def run_now(self, name: str) -> Seen:
        """S2: only a scheduled job; a pending one, claimed ahead or not, is as it should be."""
        job = self._one(name)
        if job.lane is not None and job.is_waiting:
            raise InvalidState  # a limit keeps it waiting, and only that is to be changed
        if job.shown is State.PENDING:
            return self.tables.job_seen(job)
        if job.state is not Live.SCHEDULED:
            raise InvalidState
        job.state, job.run_at = job.waits, self.now
        return self.tables.job_seen(job)

    def retry(self, name: str) -> Seen:
        """K2: pending again with fresh attempts, and with it what its failure had failed (B6)."""
        job = self._addressed(name)
        if job.state is not None or job.shown not in OVER:
            raise InvalidState
        if len(job.after) < job.given:
            self.seen["not retried: its blocker was deleted"] += 1
            raise InvalidState
        if job.policy is Policy.FAIL and any(map(is_bad, self.tables.blockers_of(job))):
            self.seen["not retried: its blocker failed"] += 1
            raise InvalidState
        self._revive(job)
        return self.tables.job_seen(job)

    def _revive(self, job: Job) -> None:
        """Open a job again, then what its failure had failed, and so on, the youngest first.

        A dependent that cannot come back stays as it ended. Who has not ended waits again, unless
        he runs just now.
        """
        todo = [job]
        while todo:
            one = todo.pop()
            try:
                self._reopen(one, asked=one is job)
            except (DuplicateKey, InvalidState):
                if one is job:
                    raise
                continue
            for dependent in self.tables.behind(one.chain):
                if dependent.state is Live.RUNNING:
                    self.seen["runs on though its blocker is open again"] += 1
                elif dependent.state is not None:
                    dependent.state = Live.BLOCKED
                    self.seen["blocked again"] += 1
                elif self._was_failed_by_now_met(dependent):
                    todo.append(dependent)

    def _was_failed_by_now_met(self, job: Job) -> bool:
        """Whether a blocker had failed it, and none has failed any more."""
        return (
            job.last is not None
            and job.last.blocker is not None
            and len(job.after) == job.given
            and not any(map(is_bad, self.tables.blockers_of(job)))
        )

    def _reopen(self, job: Job, asked: bool) -> None:
        """Open an ended job and its chain, if its key can be had back and nothing goes round."""
        tables = self.tables
        waits = tables.unmet(job)
        if waits and job.chain in self._upstream(job, reopened=True):
            self.seen["not reopened: a circle"] += 1
            raise InvalidState
        chain, task = tables.chains[job.chain], tables.jobs[job.chain].new.task
        if job.key is not None:
            holder = tables.keys.get((task, job.key))
            if holder is None or holder.ended:
                tables.keys[task, job.key] = Key(job.chain, chain.created_at)
            elif asked and self._is_waited_for(job.chain):
                self.seen["reopened in its line, without its key"] += 1
            else:
                self.seen["not reopened: its key is taken"] += 1
                raise named(DuplicateKey, holder.chain)
        last = job.last
        assert last is not None
        last.final = False
        job.state, job.run_at, job.parked = job.waits, self.now, False
        if waits:
            job.state, job.run_at = Live.BLOCKED, last.run_at or self.now
        job.attempt, job.used, job.lost = last.number, 0, 0
        job.claimed_at = job.started_at = job.progress = job.progress_text = None
        chain.state, chain.ended_at = ChainState.OPEN, None
        self.seen[f"reopened {job.state.name.lower()}"] += 1

    def _is_waited_for(self, chain: str) -> bool:
        """Y2: whether the next in its line has not begun: then what has the key waits for it."""
        behind = self._next_in_line(chain)
        return any(job.state not in (None, Live.RUNNING) for job in behind)

    # ---- queues (L8)

    def pause(self, queue: str) -> None:
        self.tables.paused.add(queue)

    def resume(self, queue: str) -> None:
        self.tables.paused.discard(queue)
