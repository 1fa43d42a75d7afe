"""The operations as PostgreSQL needs them; what is common to nearly all jobs is one statement.

A round trip costs as much as the work of several jobs. So a plain job is stored by one statement,
claimed by one, and ended by three: hold its chain, see that nobody waits for it, write the end.
They cannot be one: a statement sees the database as it was when it began, and would miss an edge
that was committed while it took the chain's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from ..model import (
    CHAIN_CODE,
    CHAIN_END,
    END_STATE,
    OUTCOME_CODE,
    Claimed,
    Enqueued,
    JobRecord,
    NewJob,
    Outcome,
)
from ..operation import Op, Steps, compose
from ..sql import Row
from ..store.base import as_json, chunks, int_of
from ..store.enqueue import CHAIN, JOB, PENDING, SCHEDULED, due_at
from ..store.finish import Verdict
from .reserve import Reserve

T = TypeVar("T")

SETTLE = (
    "job_id", "attempt", "chain_id", "chain_state", "outcome", "worker", "slot", "queue", "task",
    "started_at", "now", "output", "error",
)  # fmt: skip
COPY_PLAIN = 500  # jobs from which COPY is worth its round trips

CHAIN_OF = attrgetter(*CHAIN)
JOB_OF = attrgetter(*JOB)
LIVE_OF = attrgetter("live_state", "queue", "priority", "id", "attempt", "open_blockers", "run_at")


class _ReadOff(Sequence[T]):
    """Rows or answers, each read off the record of a new job when it is needed."""

    def __init__(self, records: Sequence[JobRecord], read: Callable[[JobRecord], T]) -> None:
        self._records = records
        self._read = read

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[T]:
        return map(self._read, self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._read(self._records[index])


class PostgresStore(Reserve):
    """All operations, for many writers at a time."""

    def enqueue(self, jobs: Sequence[NewJob]) -> Op[Sequence[Enqueued]]:
        if not jobs or any(j.key is not None or j.blockers for j in jobs):
            return super().enqueue(jobs)
        if len(jobs) < COPY_PLAIN:
            return compose("enqueue", lambda: self._enqueue_plain(jobs), single=True)
        return compose("enqueue", lambda: self._copy_plain(jobs))

    def _enqueue_plain(self, jobs: Sequence[NewJob]) -> Steps[Sequence[Enqueued]]:
        given = None if self._own_clock else self.clock()
        records = [
            {
                "n": n, "task": j.task, "label": j.label, "queue": j.queue, "priority": j.priority,
                "max_attempts": j.max_attempts, "timeout": j.timeout, "policy": int(j.policy),
                "arguments": j.arguments, "trace": j.trace, "at": j.at, "delay": j.delay,
            }
            for n, j in enumerate(jobs)
        ]  # fmt: skip
        rows = yield self.sql.enqueue_plain(now=given, records=as_json(records))
        answers = [
            Enqueued(_new_record(id, jobs[n], now, run_at), True)
            for n, id, now, run_at in sorted([int_of(value) for value in row] for row in rows)
        ]
        yield from self.wake(job.queue for job in jobs)
        return answers

    def _copy_plain(self, jobs: Sequence[NewJob]) -> Steps[Sequence[Enqueued]]:
        """Many at once. All that is made for each job is its record: the rows are read off it.

        Only the jobs themselves are sent; the database makes the other rows from them, unless
        there are times that the jobs' rows do not say.
        """
        now, ids = yield from self.begin(len(jobs))
        records = [
            _new_record(id, job, now, due_at(job, now)) for id, job in zip(ids, jobs, strict=True)
        ]
        for part in chunks(records):
            if any(record.run_at != now for record in part):
                rows = (_ReadOff(part, read) for read in (CHAIN_OF, JOB_OF, LIVE_OF))
                yield from self.write_new(*rows)
            else:
                yield self.sql.insert_jobs.many(JOB, _ReadOff(part, JOB_OF))
                yield self.sql.start_jobs(ids=as_json([record.id for record in part]))
        yield from self.wake({job.queue for job in jobs})
        return _ReadOff(records, _stored)

    def take_pending(
        self, worker: int, queues: Sequence[str], room: int, name: str | None, now: int
    ) -> Steps[list[Claimed]]:
        rows = yield self.sql.claim_pending(
            now=now, worker=worker, name=name, queues=as_json(queues), room=room
        )
        return [Claimed._make(row) for row in rows]

    def settle(
        self, verdicts: Sequence[Verdict], worker: str | None, slot: int, now: int
    ) -> Steps[list[Verdict]]:
        plain: dict[int, Verdict] = {}
        for verdict in verdicts:
            ending = verdict.ending
            if (
                verdict.final
                and ending.started
                and ending.outcome is not Outcome.CONTINUED
                and ending.held.key is None
            ):
                plain.setdefault(ending.held.chain_id, verdict)
        if not plain:
            return []
        rows = yield self.sql.hold_chains_now(chains=as_json(plain))
        held = {int_of(id) for (id,) in rows}
        if held:
            rows = yield self.sql.find_awaited(chains=as_json(held))
            held -= {int_of(id) for (id,) in rows}
        if not held:
            return []
        rows = yield self.sql.settle_jobs.many(
            SETTLE, [_settled(plain[chain], worker, slot, now) for chain in held]
        )
        gone = {int_of(id) for (id,) in rows}
        return [plain[chain] for chain in held if plain[chain].ending.held.job_id in gone]


def _stored(record: JobRecord) -> Enqueued:
    return Enqueued(record, True)


def _new_record(id: int, job: NewJob, now: int, run_at: int) -> JobRecord:
    state = SCHEDULED if run_at > now else PENDING
    return JobRecord(
        id, id, 0, job.task, job.label, job.queue, job.priority, job.max_attempts, job.timeout,
        None, 0, int(job.policy), job.arguments, job.trace, now, state, 0, 0, 0, 0, run_at,
    )  # fmt: skip


def _settled(verdict: Verdict, worker: str | None, slot: int, now: int) -> Row:
    ending = verdict.ending
    held = ending.held
    state = CHAIN_CODE[CHAIN_END[END_STATE[ending.outcome]]]
    return (
        held.job_id, held.attempt, held.chain_id, state, OUTCOME_CODE[ending.outcome], worker, slot,
        held.queue, held.task, ending.started_at, now, ending.output, ending.error,
    )  # fmt: skip
