"""Reading, each method twice: blocking, and awaiting with an `a` in front.

Each builds an operation of the store and runs it, on our connection or on the caller's (`on=`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack

from ..errors import InvalidSetting
from ..model import State
from ..operation import Op, Steps
from ..records import BlockerRecord, ChainRecord, DependentRecord, JobRecord
from ..runner import Runner
from ..store import Store
from ..store.audit import AuditPage
from ..store.listing import RecordPage
from ..store.stats import RollupRecord
from ..task.tasks import Tasks
from ..times import to_datetime
from .answers import AttemptInfo, AuditLine, Page, WorkerInfo, plain_counts
from .filters import (
    ChainsWhere,
    JobsWhere,
    StatsWhere,
    chain_filter,
    check_id,
    check_limit,
    job_filter,
    parse_cursor,
    stats_filter,
)
from .handles import Chain, Job
from .rollups import By, EndedJobs, ended_jobs, minutes_of
from .settings import Settings
from .why import sentence

if TYPE_CHECKING:
    from ..events.tracing import Tracing

R = TypeVar("R", JobRecord, ChainRecord)
H = TypeVar("H", Job[Any], Chain)


class Reading(Tasks):
    """What one can know of jobs that exist, and of who works on them."""

    runner: Runner
    settings: Settings
    tracing: Tracing | None = None  # who is told of what it stores and runs, to make spans of it

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
        return Job(self, self.runner.run(self._store.job(check_id(id)), on))

    async def ajob(self, id: int, *, on: object = None) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.job(check_id(id)), on))

    def chain(self, id: int, *, on: object = None) -> Chain:
        """A chain by its first job's id, with its last job; NotFound when there is none."""
        return Chain(self, *self.runner.run(self._store.chain(check_id(id)), on))

    async def achain(self, id: int, *, on: object = None) -> Chain:
        return Chain(self, *await self.runner.arun(self._store.chain(check_id(id)), on))

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
        return self._page(Job, self.runner.run(self._list_jobs(where, limit, cursor, newest), on))

    async def ajobs(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        newest: bool = True,
        on: object = None,
        **where: Unpack[JobsWhere],
    ) -> Page[Job[Any]]:
        found = await self.runner.arun(self._list_jobs(where, limit, cursor, newest), on)
        return self._page(Job, found)

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
        found = self.runner.run(self._list_chains(where, limit, cursor, newest), on)
        return self._page(Chain, found)

    async def achains(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        newest: bool = True,
        on: object = None,
        **where: Unpack[ChainsWhere],
    ) -> Page[Chain]:
        found = await self.runner.arun(self._list_chains(where, limit, cursor, newest), on)
        return self._page(Chain, found)

    def attempts(self, id: int, *, on: object = None) -> list[AttemptInfo]:
        """Every attempt of a job, oldest first; the running one last."""
        found = self.runner.run(self._store.attempts(check_id(id)), on)
        return [AttemptInfo.of(record) for record in found]

    async def aattempts(self, id: int, *, on: object = None) -> list[AttemptInfo]:
        found = await self.runner.arun(self._store.attempts(check_id(id)), on)
        return [AttemptInfo.of(record) for record in found]

    def blockers(self, id: int, *, on: object = None) -> list[BlockerRecord]:
        """What a job waits or waited for, in declared order."""
        return self.runner.run(self._store.blockers([check_id(id)]), on).get(id, [])

    async def ablockers(self, id: int, *, on: object = None) -> list[BlockerRecord]:
        return (await self.runner.arun(self._store.blockers([check_id(id)]), on)).get(id, [])

    def dependents(self, chain_id: int, *, on: object = None) -> list[DependentRecord]:
        """Jobs that wait, or waited, for a chain."""
        return self.runner.run(self._store.dependents(check_id(chain_id)), on)

    async def adependents(self, chain_id: int, *, on: object = None) -> list[DependentRecord]:
        return await self.runner.arun(self._store.dependents(check_id(chain_id)), on)

    def why(self, id: int, *, on: object = None) -> str:
        """Why a job does not run, in one sentence; of one that has ended, how and when."""
        return sentence(self.runner.run(self._store.why(check_id(id)), on))

    async def awhy(self, id: int, *, on: object = None) -> str:
        return sentence(await self.runner.arun(self._store.why(check_id(id)), on))

    def audit(
        self,
        *,
        job: int | None = None,
        queue: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        on: object = None,
    ) -> Page[AuditLine]:
        """What people did to a job, to a queue, or to anything, newest first: all that was done
        with `by`. `cursor` goes on after a page."""
        return self._audited(self.runner.run(self._audit(job, queue, limit, cursor), on))

    async def aaudit(
        self,
        *,
        job: int | None = None,
        queue: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        on: object = None,
    ) -> Page[AuditLine]:
        return self._audited(await self.runner.arun(self._audit(job, queue, limit, cursor), on))

    def workers(self, *, on: object = None) -> list[WorkerInfo]:
        """Registered workers, each with its lease and the jobs it holds."""
        return self.runner.run(Op("workers", self._workers, reads=True), on)

    async def aworkers(self, *, on: object = None) -> list[WorkerInfo]:
        return await self.runner.arun(Op("workers", self._workers, reads=True), on)

    def counts(
        self, *, by: Literal["queue", "task"] = "queue", on: object = None
    ) -> dict[str, dict[str, int]]:
        """Jobs by queue or task, and state, such as {"mail": {"pending": 3}}; what there is none of
        is left out. Beyond 100,000 open ones a number is AtLeast."""
        return plain_counts(self.runner.run(self._counts(by), on))

    async def acounts(
        self, *, by: Literal["queue", "task"] = "queue", on: object = None
    ) -> dict[str, dict[str, int]]:
        return plain_counts(await self.runner.arun(self._counts(by), on))

    def stats(
        self, *, by: By | None = None, on: object = None, **where: Unpack[StatsWhere]
    ) -> list[EndedJobs]:
        """Jobs that ended from `since` to `until`, by queue, task and outcome, with run times; by
        "minute", "hour" or "day" also over time, oldest first. A time that begins or ends the
        range is taken as its whole minute; beyond 2 days hours are kept, beyond 90 days days."""
        return ended_jobs(self.runner.run(self._stats(by, where), on), by)

    async def astats(
        self, *, by: By | None = None, on: object = None, **where: Unpack[StatsWhere]
    ) -> list[EndedJobs]:
        return ended_jobs(await self.runner.arun(self._stats(by, where), on), by)

    def paused(self, *, on: object = None) -> list[str]:
        """Names of the paused queues."""
        return [queue.name for queue in self.runner.run(self._store.paused(), on)]

    async def apaused(self, *, on: object = None) -> list[str]:
        return [queue.name for queue in await self.runner.arun(self._store.paused(), on)]

    def parked(self, *, on: object = None) -> dict[str, int]:
        """Tasks that no running worker knows, with the number of their jobs that are set aside;
        1000 of them are counted."""
        return self.runner.run(self._store.parked(), on)

    async def aparked(self, *, on: object = None) -> dict[str, int]:
        return await self.runner.arun(self._store.parked(), on)

    def now(self, *, on: object = None) -> datetime:
        """The time by the clock that decides: this host's on SQLite, the server's on PostgreSQL."""
        return to_datetime(self.runner.run(Op("now", self._store.now, reads=True), on))

    async def anow(self, *, on: object = None) -> datetime:
        return to_datetime(await self.runner.arun(Op("now", self._store.now, reads=True), on))

    def target(self, id: int, *, on: object = None) -> Job[Any]:
        """The job that control of this one acts on: the first job of a chain that went on stands
        for its chain, so its last."""
        return Job(self, self.runner.run(self._store.target(check_id(id)), on))

    async def atarget(self, id: int, *, on: object = None) -> Job[Any]:
        return Job(self, await self.runner.arun(self._store.target(check_id(id)), on))

    # ---- shared by both twins

    def _counts(self, by: str) -> Op[dict[str, dict[State, tuple[int, bool]]]]:
        if by not in ("queue", "task"):
            raise InvalidSetting(f'by= is "queue" or "task", not {by!r}')
        return self._store.counts(by_task=by == "task")

    def _list_jobs(
        self, where: JobsWhere, limit: int, cursor: str | None, newest: bool
    ) -> Op[RecordPage[JobRecord]]:
        filter = job_filter(where)
        return self._store.jobs(filter, check_limit(limit), parse_cursor(cursor), newest)

    def _list_chains(
        self, where: ChainsWhere, limit: int, cursor: str | None, newest: bool
    ) -> Op[RecordPage[ChainRecord]]:
        filter = chain_filter(where)
        return self._store.chains(filter, check_limit(limit), parse_cursor(cursor), newest)

    def _page(self, handle: Callable[[Reading, R], H], found: RecordPage[R]) -> Page[H]:
        cursor = None if found.cursor is None else str(found.cursor)
        return Page([handle(self, record) for record in found.records], cursor)

    def _audit(
        self, job: int | None, queue: str | None, limit: int, cursor: str | None
    ) -> Op[AuditPage]:
        if job is not None and queue is not None:
            raise InvalidSetting("audit() is about a job or a queue, not both")
        job = None if job is None else check_id(job)
        return self._store.audit(job, queue, check_limit(limit), parse_cursor(cursor))

    def _audited(self, found: AuditPage) -> Page[AuditLine]:
        cursor = None if found.cursor is None else str(found.cursor)
        return Page([AuditLine.of(record) for record in found.records], cursor)

    def _workers(self) -> Steps[list[WorkerInfo]]:
        found: list[WorkerInfo] = []
        for record in (yield from self._store.workers()):
            running = yield from self._store.running(record.id)
            found.append(WorkerInfo.of(record, sorted(job for job, _ in running)))
        return found

    def _stats(self, by: By | None, where: StatsWhere) -> Op[list[RollupRecord]]:
        return self._store.stats(stats_filter(where), minutes_of(by))
