"""The operations as PostgreSQL needs them; what is common to nearly all jobs is one statement.

A round trip costs as much as the work of several jobs. So a plain job is stored by one statement,
claimed by one, and ended by three: hold its chain, see that nobody waits for it, write the end.
They cannot be one: a statement sees the database as it was when it began, and would miss an edge
that was committed while it took the chain's lock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

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
from ..store.base import as_json, int_of, portions
from ..store.columns import SHAPE, row_of, shape_of
from ..store.enqueue import PENDING, SCHEDULED, due_at
from ..store.finish import Verdict
from .finish_locks import Reserve

SETTLE = (
    "job_id", "attempt", "held_by", "chain_id", "chain_state", "outcome", "worker", "slot", "queue",
    "task", "started_at", "now", "output", "error", "error_type",
)  # fmt: skip


class _Answers(Sequence[Enqueued]):
    """What enqueue says of new jobs, made of their records when it is asked for."""

    def __init__(self, records: Sequence[JobRecord]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Enqueued]:
        return map(_stored, self._records)

    def __getitem__(self, index: Any) -> Any:
        return _stored(self._records[index])


class PostgresStore(Reserve):
    """All operations, for many writers at a time."""

    def enqueue(self, jobs: Sequence[NewJob]) -> Op[Sequence[Enqueued]]:
        if not jobs or any(j.key is not None or j.blockers for j in jobs):
            return super().enqueue(jobs)
        parts = list(portions(jobs, _size))
        return compose("enqueue", lambda: self._enqueue_plain(parts), single=len(parts) == 1)

    def _enqueue_plain(self, parts: Sequence[Sequence[NewJob]]) -> Steps[Sequence[Enqueued]]:
        now = None if self._own_clock else self.clock()
        queues: set[str] = set()
        records: list[JobRecord] = []
        for part in parts:
            runs: list[dict[str, Any]] = []
            for shape, alike in groupby(part, shape_of):
                arguments = [job.arguments for job in alike]
                runs.append(dict(zip(SHAPE, shape, strict=True), arguments=arguments))
            rows = yield self.sql.enqueue_plain(now=now, runs=as_json(runs))
            ((stored_at, ids),) = rows
            now = int_of(stored_at)
            for id, job in zip(json.loads(str(ids)), part, strict=True):
                records.append(_new_record(id, job, now, due_at(job, now)))
            queues.update(run["queue"] for run in runs)
        yield from self.wake(queues)
        return _Answers(records)

    def take_pending(
        self, worker: int, queues: Sequence[str], room: int, free: int, name: str | None, now: int
    ) -> Steps[list[Claimed]]:
        rows = yield self.sql.claim_pending(
            now=now, worker=worker, name=name, queues=as_json(queues), room=room, free=free,
            safe=self.crash_limit - 1,
        )  # fmt: skip
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
        self.refuse_old_snapshot(rows)
        held = {int_of(id) for id, _ in rows}
        if held:
            rows = yield self.sql.find_awaited(chains=as_json(held))
            held -= {int_of(id) for (id,) in rows}
        if not held:
            return []
        rows = yield self.sql.settle_jobs.many(
            SETTLE, [_settled(plain[chain], worker, slot, now) for chain in held]
        )
        gone = {int_of(id) for (id,) in rows}
        if gone:
            yield from self.tell_ended()
        return [plain[chain] for chain in held if plain[chain].ending.held.job_id in gone]


def _size(job: NewJob) -> int:
    return len(job.arguments)


def _stored(record: JobRecord) -> Enqueued:
    return Enqueued(record, True)


def _new_record(id: int, job: NewJob, now: int, run_at: int) -> JobRecord:
    state = SCHEDULED if run_at > now else PENDING
    return JobRecord.of((*row_of(job, id, id, 0, 0, now), state, 0, 0, 0, 0, run_at))


def _settled(verdict: Verdict, worker: str | None, slot: int, now: int) -> Row:
    ending = verdict.ending
    held = ending.held
    state = CHAIN_CODE[CHAIN_END[END_STATE[ending.outcome]]]
    return (
        held.job_id, held.attempt, held.worker, held.chain_id, state, OUTCOME_CODE[ending.outcome],
        worker, slot, held.queue, held.task, ending.started_at, now, ending.output, ending.error,
        ending.error_type,
    )  # fmt: skip
