"""Control from outside a worker: cancel, retry, run now, complete, fail, pause, resume.

Each works on the job as it stands and is fenced by that state; a worker that runs the job loses
its claim and learns it at its next renewal.
"""

from __future__ import annotations

from ..errors import InvalidState, NotFound
from ..model import (
    CHAIN_END,
    END_STATE,
    OUTCOME_CODE,
    JobRecord,
    Live,
    NewJob,
    Outcome,
    Policy,
    State,
    storable,
)
from ..operation import Steps, operation
from .cascade import DELETE_LIVE, WAITING_END, EndedChain, EndedJob
from .finish import RECORD, successor_of
from .revive import BAD, Revive

REASON = 64 * 1024  # characters of a reason, as of a handler's error
NAME = 200  # characters of who did it


class Control(Revive):
    """Operations of people and applications on jobs that exist."""

    @operation()
    def cancel(
        self, job_id: int, reason: str | None = None, by: str | None = None
    ) -> Steps[JobRecord]:
        """End an open job as cancelled, its chain with it; what its handler says is refused."""
        record = yield from self._open_job(job_id, "cancelled")
        return (yield from self._end(record, Outcome.CANCELLED, error=reason, by=by))

    @operation()
    def complete(
        self, job_id: int, output: str | None, next: NewJob | None = None, by: str | None = None
    ) -> Steps[JobRecord]:
        """Complete an open job from outside, with an output or with its continuation."""
        record = yield from self._open_job(job_id, "completed")
        outcome = Outcome.COMPLETED if next is None else Outcome.CONTINUED
        return (yield from self._end(record, outcome, output=output, next=next, by=by))

    @operation()
    def fail(self, job_id: int, reason: str, by: str | None = None) -> Steps[JobRecord]:
        """Fail an open job from outside, without another try."""
        record = yield from self._open_job(job_id, "failed")
        return (yield from self._end(record, Outcome.FAILED, error=reason, by=by))

    @operation()
    def run_now(self, job_id: int) -> Steps[JobRecord]:
        """Make a scheduled job pending at once; one that is pending stays as it is."""
        yield from self.hold_jobs([job_id])
        record = yield from self.one(job_id)
        if record.state is State.PENDING:
            return record
        if record.live_state != Live.SCHEDULED:
            raise InvalidState(
                f"job {job_id} is {record.state}; only a scheduled job can be told to run now"
            )
        now = yield from self.now()
        yield self.sql.move_waiting(
            state=int(Live.PENDING), run_at=now, open_blockers=0, was=int(Live.SCHEDULED),
            queue=record.queue, priority=record.priority, job_id=job_id,
        )  # fmt: skip
        yield from self.wake([record.queue])
        return (yield from self.one(job_id))

    @operation()
    def retry(self, job_id: int) -> Steps[JobRecord]:
        """Make a failed or cancelled job pending again with fresh attempts; history stays.

        The first job of a failed chain stands for its chain: the last job is retried. Jobs that
        this chain's failure had failed are revived.
        """
        record = yield from self.held(job_id)
        if record.state not in (State.FAILED, State.CANCELLED):
            raise InvalidState(
                f"job {record.id} is {record.state}; only a failed or cancelled job can be retried"
            )
        yield from self.share_blockers([record.id])
        blockers = (yield from self.blockers([record.id])).get(record.id, [])
        if len(blockers) < record.blockers:
            raise InvalidState(
                f"job {record.id} cannot run again: a chain it waited for was deleted; "
                "enqueue it anew"
            )
        bad = [b.chain_id for b in blockers if b.state in BAD]
        if bad and record.policy == Policy.FAIL:
            raise InvalidState(
                f"job {record.id} waits for chain {bad[0]}, which failed; "
                f"retry({bad[0]}) comes first"
            )
        now = yield from self.now()
        yield from self.revive(record, {b.chain_id: b.state for b in blockers}, now)
        return (yield from self.one(record.id))

    @operation()
    def pause(self, queue: str, by: str | None = None) -> Steps[None]:
        """Stop claims from a queue, for every worker and across restarts."""
        now = yield from self.now()
        yield self.sql.pause_queue(name=queue, now=now, by=brief(by))

    @operation()
    def resume(self, queue: str) -> Steps[None]:
        """Let workers claim from a paused queue again."""
        yield self.sql.resume_queue(name=queue)
        yield from self.wake([queue])

    @operation(reads=True)
    def one(self, job_id: int) -> Steps[JobRecord]:
        """A job as it stands."""
        found = yield from self.records([job_id])
        if not found:
            raise NotFound(f"there is no job {job_id}")
        return found[0]

    @operation(reads=True)
    def addressed(self, job_id: int) -> Steps[JobRecord]:
        """The job that control of this one acts on: the first job of a chain that went on stands
        for its chain, so its last."""
        record = yield from self.one(job_id)
        if record.live_state is None and record.id == record.chain_id and record.continued_by:
            record = (yield from self.tail(record.chain_id)) or record
        return record

    def held(self, job_id: int) -> Steps[JobRecord]:
        """The job that control of this one acts on, as it will stand until the commit."""
        while True:
            record = yield from self.addressed(job_id)
            if not (yield from self.hold_jobs([record.id], behind=True)):
                return record
            again = yield from self.addressed(job_id)
            if again.id == record.id:
                return again

    # ---- ending

    def _open_job(self, job_id: int, what: str) -> Steps[JobRecord]:
        record = yield from self.held(job_id)
        if record.live_state is None:
            raise InvalidState(f"job {record.id} is {record.state} and cannot be {what} any more")
        return record

    def _end(
        self,
        record: JobRecord,
        outcome: Outcome,
        *,
        output: str | None = None,
        error: str | None = None,
        next: NewJob | None = None,
        by: str | None = None,
    ) -> Steps[JobRecord]:
        """End a job as seen. A running attempt that did not end it itself is recorded as lost."""
        now = yield from self.now()
        by, error = brief(by) or "outside", storable(error)
        if error is not None and len(error) > REASON:
            error = f"{error[:REASON]} … ({len(error):,} characters)"
        code = OUTCOME_CODE[outcome]
        successor = None
        if next is not None:
            (successor,) = yield from self.new_ids(1)
        state, queue, priority = record.live_state, record.queue, record.priority
        if state == Live.RUNNING and record.started_at is not None:
            own = outcome is Outcome.CANCELLED
            note = error if own else f"{outcome} from outside by {by} during this attempt"
            first = code if own else OUTCOME_CODE[Outcome.LOST]
            yield self.sql.record_attempts.counted(RECORD, [(
                first, 1 if own else None, record.worker, None, now, None, note, None, None,
                by if own else None, queue, priority, record.id, record.attempt, None,
            )])  # fmt: skip
            if not own:
                yield self.sql.insert_attempt(
                    job_id=record.id, number=(record.attempt or 0) + 1, outcome=code, now=now,
                    output=output, error=error, continued_by=successor, ended_by=by,
                )  # fmt: skip
        else:
            yield self.sql.record_waiting_end.counted(WAITING_END, [(
                code, now, output, error, None, successor, by, state, queue, priority, record.id,
            )])  # fmt: skip
        yield self.sql.delete_live.many(DELETE_LIVE, [(state, queue, priority, record.id)])
        if next is not None and successor is not None:
            yield from self.insert([successor_of(record, next, successor)], now)
        else:
            ended = EndedChain(record.chain_id, CHAIN_END[END_STATE[outcome]], record.key)
            yield from self.end_chains([ended], now)
        yield from self.count_ended([EndedJob(queue, record.task, code, None)], now)
        return (yield from self.one(record.id))


def brief(by: str | None) -> str | None:
    """Who did it, as far as there is room for it."""
    text = storable(by)
    return text if text is None else text[:NAME]
