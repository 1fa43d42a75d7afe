"""The store as SQLite needs it: what is done most of all takes few steps."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..model import (
    CHAIN_CODE,
    CHAIN_END,
    OUTCOME_CODE,
    Claimed,
    Ending,
    Enqueued,
    Live,
    NewJob,
    Outcome,
)
from ..operation import Loss, Mark, Op, Steps
from ..sql import Statement
from ..store import Store
from ..store.cascade import count_ended
from ..store.columns import new_record, row_of
from ..store.finish import ended_job
from ..store.ground import Verdict, as_json, in_claim_order, int_of, plain_ends

PENDING = int(Live.PENDING)
LONG = 10_000  # characters of an output or error that are better not copied once more
Group = tuple[str, int, int | None, Outcome]  # queue, priority, worker, how it ended


class SqliteStore(Store):
    """All operations, for one writer at a time on one host."""

    # ---- one plain job

    def enqueue(self, jobs: Sequence[NewJob]) -> Op[Sequence[Enqueued]]:
        if len(jobs) == 1:
            job = jobs[0]
            if job.key is None and not job.blockers and job.delay is None and job.at is None:
                return Op("enqueue", self._enqueue_one, job, loss=Loss.IF_ALLOWED)
        return super().enqueue(jobs)

    def _enqueue_one(self, job: NewJob) -> Steps[Sequence[Enqueued]]:
        """One job that needs no other row and is due at once; as `store.enqueue.insert` does it."""
        now = self.clock()
        ((next_id,),) = yield self.sql.next_job_id()
        id = int_of(next_id)
        row = row_of(job, id, id, 0, 0, now)
        yield Statement(self.sql.insert_chains, (id, job.task, now, job.trace))
        yield Statement(self.sql.insert_jobs, row)
        yield Statement(self.sql.insert_live, (PENDING, job.queue, job.priority, id, 0, 0, now))
        yield Mark({job.queue})
        return (Enqueued(new_record(*row, PENDING, 0, 0, 0, 0, now), True),)

    # ---- the many of a turn

    def take_pending(
        self, worker: int, queues: Sequence[str], room: int, free: int, name: str | None, now: int
    ) -> Steps[list[Claimed]]:
        ((found,),) = yield self.sql.find_pending(
            now=now, worker=worker, name=name, queues=as_json(queues), room=room
        )
        claimed = in_claim_order(_claimed(str(found)))
        if long := [job.job_id for job in claimed if not job.arguments]:
            rows = yield self.sql.long_arguments(jobs=as_json(long))
            texts = {id: str(text) for id, text in rows}
            claimed = [
                job if job.arguments else job._replace(arguments=texts[job.job_id])
                for job in claimed
            ]
        lanes: dict[tuple[str, int], list[int]] = {}
        free_up_to: dict[tuple[str, int], int] = {}
        for place, job in enumerate(claimed):
            lane = job.queue, job.priority
            lanes.setdefault(lane, []).append(job.job_id)
            if place < free:
                free_up_to[lane] = job.job_id
        for lane, jobs in lanes.items():
            queue, priority = lane
            yield self.sql.claim_jobs(
                now=now, worker=worker, safe=self.crash_limit - 1, queue=queue, priority=priority,
                free=free_up_to.get(lane, 0), jobs=as_json(jobs),
            )  # fmt: skip
        return claimed

    def settle(
        self, verdicts: Sequence[Verdict], worker: str | None, slot: int, now: int
    ) -> Steps[list[Verdict]]:
        """Jobs that are over, without a key, a successor, or a job behind them."""
        plain = plain_ends([verdict for verdict in verdicts if not _is_long(verdict.ending)])
        if not plain:
            return []
        for (chain,) in (yield self.sql.find_awaited(chains=as_json(plain))):
            plain.pop(int_of(chain), None)
        groups: dict[Group, list[Verdict]] = {}
        for verdict in plain.values():
            held = verdict.ending.held
            group = held.queue, held.priority, held.worker, verdict.ending.outcome
            groups.setdefault(group, []).append(verdict)
        accepted: list[Verdict] = []
        for group, alike in groups.items():
            accepted += yield from self._settle_alike(alike, group, worker, now)
        if accepted:
            yield from self.tell_ended()
            yield from count_ended(self, [ended_job(v, now) for v in accepted], now, slot)
        return accepted

    def _settle_alike(
        self,
        verdicts: list[Verdict],
        group: Group,
        worker: str | None,
        now: int,
    ) -> Steps[list[Verdict]]:
        """Write ends that have all this in common; those that passed the fence."""
        queue, priority, held_by, outcome = group
        rows = _rows(verdicts)
        ((found,),) = yield self.sql.find_settled(
            rows=rows, queue=queue, priority=priority, held_by=held_by
        )
        passed = _ids(str(found))
        if len(passed) < len(verdicts):
            verdicts = [v for v in verdicts if v.ending.held.job_id in passed]
            rows = _rows(verdicts)
            if not verdicts:
                return []
        held = [verdict.ending.held for verdict in verdicts]
        yield self.sql.settle_attempts(
            rows=rows, outcome=OUTCOME_CODE[outcome], worker=worker, now=now, queue=queue,
            priority=priority,
        )  # fmt: skip
        jobs = as_json([job.job_id for job in held])
        yield self.sql.settle_live(queue=queue, priority=priority, jobs=jobs)
        state = CHAIN_CODE[CHAIN_END[outcome]]
        chains = as_json([job.chain_id for job in held])
        yield self.sql.settle_chains(state=state, now=now, chains=chains)
        return verdicts


_claimed = msgspec.json.Decoder(list[Claimed]).decode
_ids = msgspec.json.Decoder(set[int]).decode


def _rows(verdicts: Sequence[Verdict]) -> str:
    endings = [verdict.ending for verdict in verdicts]
    return as_json([(*e.held[:2], e.started_at, e.output, e.error, e.error_type) for e in endings])


def _is_long(ending: Ending) -> bool:
    return len(ending.output or "") >= LONG or len(ending.error or "") >= LONG
