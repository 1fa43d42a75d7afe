"""The store as SQLite needs it: what is done most of all takes few steps."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Enqueued, Live, NewJob
from ..operation import Loss, Mark, Op, Steps
from ..sql import Statement
from ..store import Store
from ..store.columns import new_record, row_of

PENDING = int(Live.PENDING)


class SqliteStore(Store):
    """All operations, for one writer at a time on one host."""

    def enqueue(self, jobs: Sequence[NewJob]) -> Op[Sequence[Enqueued]]:
        if len(jobs) == 1:
            job = jobs[0]
            if job.key is None and not job.blockers and job.delay is None and job.at is None:
                return Op("enqueue", self._enqueue_one, job, loss=Loss.IF_ALLOWED)
        return super().enqueue(jobs)

    def _enqueue_one(self, job: NewJob) -> Steps[Sequence[Enqueued]]:
        """One job that needs no other row and is due at once; as `store.enqueue.insert` does it."""
        sql, now = self.sql, self.clock()
        ((id,),) = yield sql.next_job_id()
        row = row_of(job, id, id, 0, 0, now)  # type: ignore[arg-type]
        yield Statement(sql.insert_chains, (id, job.task, now, job.trace))
        yield Statement(sql.insert_jobs, row)
        yield Statement(sql.insert_live, (PENDING, job.queue, job.priority, id, 0, 0, now))
        yield Mark({job.queue})
        return (Enqueued(new_record(*row, PENDING, 0, 0, 0, 0, now), True),)
