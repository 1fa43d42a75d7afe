"""Reading and control, each method twice: blocking, and awaiting with an `a` in front.

Each builds an operation of the store and runs it, on our connection or on the caller's (`on=`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..errors import StoreError
from ..model import BlockerRecord, ChainRecord, DependentRecord, JobRecord, NewJob
from ..operation import Op
from ..store.listing import RecordPage
from ..task import Next, Tasks
from ..task.batch import next_job
from .filters import (
    ChainsWhere,
    JobsWhere,
    bulk_filter,
    chain_filter,
    check_limit,
    counted,
    cursor_of,
    job_filter,
    known,
    named,
    position,
)
from .handles import Attempt, Chain, Job, Page, WorkerInfo

if TYPE_CHECKING:
    from typing import Unpack

    from ..runner import Runner
    from ..store import Store
    from .settings import Settings

BULK_PAGE = 200
VACUUM_PAGES = 1000


class Management(Tasks):
    """Everything one does with jobs that exist."""

    runner: Runner
    settings: Settings

    @property
    def _store(self) -> Store:
        return self.runner.store

    def decode_output(self, task: str, text: str | None) -> Any:
        """An output by its task's return type, or as plain JSON when the task is unknown here."""
        if text is None:
            return None
        if task in self.registry:
            return self.registry[task].signature.decode_output(text)
        from ..task.signature import convert

        return convert(text, Any)

    # ---- reading

    def job(self, id: int, *, on: object = None) -> Job[Any]:
        """A job by its id; NotFound when there is none."""
        return Job(self, self.runner.run(self._store.job(known(id)), on))

    async def ajob(self, id: int, *, on: object = None) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.job(known(id)), on))

    def chain(self, id: int, *, on: object = None) -> Chain:
        """A chain by its first job's id, with its last job; NotFound when there is none."""
        return Chain(self, *self.runner.run(self._store.chain(known(id)), on))

    async def achain(self, id: int, *, on: object = None) -> Chain:
        return Chain(self, *await self.runner.arun(self._store.chain(known(id)), on))

    def jobs(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        newest: bool = True,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> Page[Job[Any]]:
        """A page of jobs that fit every filter, newest first; `cursor` goes on after it."""
        return self._jobs_page(self.runner.run(self._list_jobs(where, limit, cursor, newest), on))

    async def ajobs(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        newest: bool = True,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> Page[Job[Any]]:
        return self._jobs_page(
            await self.runner.arun(self._list_jobs(where, limit, cursor, newest), on)
        )

    def chains(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        newest: bool = True,
        on: object = None,
        **where: Unpack[ChainsWhere],
    ) -> Page[Chain]:
        """A page of chains that fit every filter, newest first; `cursor` goes on after it."""
        return self._chains_page(
            self.runner.run(self._list_chains(where, limit, cursor, newest), on)
        )

    async def achains(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        newest: bool = True,
        on: object = None,
        **where: Unpack[ChainsWhere],
    ) -> Page[Chain]:
        return self._chains_page(
            await self.runner.arun(self._list_chains(where, limit, cursor, newest), on)
        )

    def attempts(self, id: int, *, on: object = None) -> list[Attempt]:
        """Every attempt of a job, oldest first; the running one last."""
        return [
            Attempt.of(record) for record in self.runner.run(self._store.attempts(known(id)), on)
        ]

    async def aattempts(self, id: int, *, on: object = None) -> list[Attempt]:
        return [
            Attempt.of(record)
            for record in await self.runner.arun(self._store.attempts(known(id)), on)
        ]

    def blockers(self, id: int, *, on: object = None) -> list[BlockerRecord]:
        """What a job waits or waited for, in declared order."""
        return self.runner.run(self._store.blockers([known(id)]), on).get(id, [])

    async def ablockers(self, id: int, *, on: object = None) -> list[BlockerRecord]:
        return (await self.runner.arun(self._store.blockers([known(id)]), on)).get(id, [])

    def dependents(self, chain_id: int, *, on: object = None) -> list[DependentRecord]:
        """Jobs that wait, or waited, for a chain."""
        return self.runner.run(self._store.dependents(known(chain_id)), on)

    async def adependents(self, chain_id: int, *, on: object = None) -> list[DependentRecord]:
        return await self.runner.arun(self._store.dependents(known(chain_id)), on)

    def workers(self, *, on: object = None) -> list[WorkerInfo]:
        """Registered workers."""
        return [WorkerInfo.of(record) for record in self.runner.run(self._store.workers(), on)]

    async def aworkers(self, *, on: object = None) -> list[WorkerInfo]:
        return [
            WorkerInfo.of(record) for record in await self.runner.arun(self._store.workers(), on)
        ]

    def counts(self, *, on: object = None) -> dict[str, dict[str, int]]:
        """Jobs by queue and state, such as {"mail": {"pending": 3}}; what there is none of is left
        out. Beyond 100,000 open ones a number is AtLeast."""
        return counted(self.runner.run(self._store.counts(), on))

    async def acounts(self, *, on: object = None) -> dict[str, dict[str, int]]:
        return counted(await self.runner.arun(self._store.counts(), on))

    def paused(self, *, on: object = None) -> list[str]:
        """Names of the paused queues."""
        return self.runner.run(self._store.paused(), on)

    async def apaused(self, *, on: object = None) -> list[str]:
        return await self.runner.arun(self._store.paused(), on)

    # ---- control

    def cancel(
        self, id: int, *, reason: str | None = None, by: str | None = None, on: object = None
    ) -> Job[Any]:
        """End an open job as cancelled, its chain with it; dependents follow their policy."""
        return Job(self, self.runner.run(self._store.cancel(known(id), reason, by), on))

    async def acancel(
        self, id: int, *, reason: str | None = None, by: str | None = None, on: object = None
    ) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.cancel(known(id), reason, by), on))

    def retry(self, id: int, *, on: object = None) -> Job[Any]:
        """Make a failed or cancelled job pending again, with what its failure had failed."""
        return Job(self, self.runner.run(self._store.retry(known(id)), on))

    async def aretry(self, id: int, *, on: object = None) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.retry(known(id)), on))

    def run_now(self, id: int, *, on: object = None) -> Job[Any]:
        """Make a scheduled job pending at once; one that is pending already stays as it is."""
        return Job(self, self.runner.run(self._store.run_now(known(id)), on))

    async def arun_now(self, id: int, *, on: object = None) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.run_now(known(id)), on))

    def complete(
        self, id: int, value: Any = None, *, by: str | None = None, on: object = None
    ) -> Job[Any]:
        """Complete an open job from outside, with a value or with `task.then(...)`.

        A worker that runs it loses it. The value is checked against the task's return type.
        """
        record = self.runner.run(self._store.target(known(id)), on)
        output, following = self._outcome(record.task, value)
        return Job(
            self, self.runner.run(self._store.complete(known(id), output, following, by), on)
        )

    async def acomplete(
        self, id: int, value: Any = None, *, by: str | None = None, on: object = None
    ) -> Job[Any]:
        record = await self.runner.arun(self._store.target(known(id)), on)
        output, following = self._outcome(record.task, value)
        return Job(
            self, await self.runner.arun(self._store.complete(known(id), output, following, by), on)
        )

    def fail(self, id: int, reason: str, *, by: str | None = None, on: object = None) -> Job[Any]:
        """Fail an open job from outside, without another try."""
        return Job(self, self.runner.run(self._store.fail(known(id), reason, by), on))

    async def afail(
        self, id: int, reason: str, *, by: str | None = None, on: object = None
    ) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.fail(known(id), reason, by), on))

    def cancel_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        by: str | None = None,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> int:
        """Cancel every open job that fits; return how many, or with preview how many it would.

        Without a filter it is refused, unless everything=True says that all are meant.
        """
        return self._bulk("cancel", where, everything, preview, by, on)

    async def acancel_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        by: str | None = None,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> int:
        return await self._abulk("cancel", where, everything, preview, by, on)

    def retry_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> int:
        """Retry every failed or cancelled job that fits; return how many, or how many it would.

        Without a filter it is refused, unless everything=True says that all are meant.
        """
        return self._bulk("retry", where, everything, preview, None, on)

    async def aretry_many(
        self,
        *,
        everything: bool = False,
        preview: bool = False,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> int:
        return await self._abulk("retry", where, everything, preview, None, on)

    def delete(
        self, chain_id: int, cascade: bool = False, *, force: bool = False, on: object = None
    ) -> list[int]:
        """Delete a chain with all that belongs to it; return the chains that went.

        With cascade also the chains it waited for. Refused while another open job waits for it,
        and while a job of it runs, unless forced: then its worker loses it.
        """
        return self.runner.run(self._store.delete([known(chain_id)], cascade, force), on)

    async def adelete(
        self, chain_id: int, cascade: bool = False, *, force: bool = False, on: object = None
    ) -> list[int]:
        return await self.runner.arun(self._store.delete([known(chain_id)], cascade, force), on)

    def pause(self, queue: str, *, by: str | None = None, on: object = None) -> None:
        """Stop claims from a queue, for all workers, until it is resumed."""
        self.runner.run(self._store.pause(named(queue), by), on)

    async def apause(self, queue: str, *, by: str | None = None, on: object = None) -> None:
        await self.runner.arun(self._store.pause(named(queue), by), on)

    def resume(self, queue: str, *, on: object = None) -> None:
        """Let workers claim from a paused queue again."""
        self.runner.run(self._store.resume(named(queue)), on)

    async def aresume(self, queue: str, *, on: object = None) -> None:
        await self.runner.arun(self._store.resume(named(queue)), on)

    # ---- upkeep

    def prune(self, *, on: object = None) -> int:
        """Delete ended chains that are older than they are kept; return how many."""
        number = 0
        while True:
            pruned = self.runner.run(self._store.prune(self.settings.keep), on)
            number += pruned.chains
            if pruned.done:
                return number

    async def aprune(self, *, on: object = None) -> int:
        number = 0
        while True:
            pruned = await self.runner.arun(self._store.prune(self.settings.keep), on)
            number += pruned.chains
            if pruned.done:
                return number

    def vacuum(self, pages: int = VACUUM_PAGES) -> int:
        """Give up to so many free pages back to the system, while workers run; return how many."""
        return self.runner.engine.vacuum(pages)

    async def avacuum(self, pages: int = VACUUM_PAGES) -> int:
        return await asyncio.to_thread(self.runner.engine.vacuum, pages)

    # ---- shared by both faces

    def _outcome(self, task: str, value: Any) -> tuple[str | None, NewJob | None]:
        if isinstance(value, Next):
            return None, next_job(value)
        if task in self.registry:
            signature = self.registry[task].signature
            return signature.encode_output(value, limit=self.settings.payload_limit), None
        from ..task.signature import encode_plain

        return encode_plain(value, limit=self.settings.payload_limit), None

    def _list_jobs(
        self, where: JobsWhere, limit: int, cursor: str | None, newest: bool
    ) -> Op[RecordPage[JobRecord]]:
        check_limit(limit)
        return self._store.jobs(job_filter(where), limit, position(cursor), newest)

    def _list_chains(
        self, where: ChainsWhere, limit: int, cursor: str | None, newest: bool
    ) -> Op[RecordPage[ChainRecord]]:
        check_limit(limit)
        return self._store.chains(chain_filter(where), limit, position(cursor), newest)

    def _jobs_page(self, found: RecordPage[JobRecord]) -> Page[Job[Any]]:
        return Page([Job(self, record) for record in found.records], cursor_of(found))

    def _chains_page(self, found: RecordPage[ChainRecord]) -> Page[Chain]:
        return Page([Chain(self, record) for record in found.records], cursor_of(found))

    def _bulk(
        self,
        action: str,
        where: JobsWhere,
        everything: bool,
        preview: bool,
        by: str | None,
        on: object,
    ) -> int:
        """Page by page, a transaction each, so that workers get in between."""
        filter = bulk_filter(f"{action}_many()", where, everything)
        number, cursor = 0, None
        while True:
            op = self._store.bulk(action, filter, preview, cursor, BULK_PAGE, by)
            try:
                touched = self.runner.run(op, on)
            except StoreError as error:
                raise _in_part(error, number) from error
            number, cursor = number + touched.number, touched.cursor
            if cursor is None:
                return number

    async def _abulk(
        self,
        action: str,
        where: JobsWhere,
        everything: bool,
        preview: bool,
        by: str | None,
        on: object,
    ) -> int:
        filter = bulk_filter(f"{action}_many()", where, everything)
        number, cursor = 0, None
        while True:
            op = self._store.bulk(action, filter, preview, cursor, BULK_PAGE, by)
            try:
                touched = await self.runner.arun(op, on)
            except StoreError as error:
                raise _in_part(error, number) from error
            number, cursor = number + touched.number, touched.cursor
            if cursor is None:
                return number


def _in_part(error: StoreError, number: int) -> StoreError:
    """What goes page by page has done the pages before."""
    if not number:
        return error
    return type(error)(f"{error}; {number} jobs were done before that: call it again for the rest")
