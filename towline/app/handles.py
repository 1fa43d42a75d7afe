"""Jobs and chains as callers hold them, with the words people use.

A handle is a snapshot; `refresh` reads it anew. The record behind it stays as the store gave it.
"""

from __future__ import annotations

from contextlib import aclosing, closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import Struct

from ..errors import ChainCancelled, ChainFailed, WaitTimeout
from ..model import ChainState, Outcome, State, unknown_task
from ..operation import Op, Steps
from ..records import ChainRecord, JobRecord
from ..task.stored import Stored
from ..task.trace import Traceparent
from ..times import to_datetime, to_datetime_or_none
from ..wakes.waiting import stood_still
from .answers import Progress, progress_of

if TYPE_CHECKING:
    from .reading import Reading  # noqa: TC004 (msgspec never looks at its type)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Job(Struct, Generic[T_co], gc=False, eq=False):
    """A stored call, as it stood when it was read.

    Like its record it is hidden from the garbage collector: a batch may give 100,000 of them.
    """

    _app: Reading
    _record: JobRecord
    created: bool = False

    id = Stored[int]()
    chain_id = Stored[int]()
    position = Stored[int]()  # place in the chain, from 0
    task = Stored[str]()
    label = Stored[str | None]()
    queue = Stored[str]()
    priority = Stored[int]()
    key = Stored[str | None]()
    lane = Stored[str | None]()
    weight = Stored[int | None]()
    state = Stored[State]()
    max_attempts = Stored[int]()
    outcome = Stored[Outcome | None]()  # how the last ended attempt ended
    arguments = Stored[str]()  # the stored arguments, as JSON text
    trace = Traceparent()
    schedule = Stored[str | None]()  # by whose tick, or run(), it was stored

    def result(self, timeout: float | None = None, *, on: object = None) -> T_co:
        """Wait for the chain and return its output; raise ChainFailed or WaitTimeout."""
        with closing(self._app.runner.waiting.looks(timeout)) as looks:
            for _ in looks:
                op = self._checked(self._app.runner.store.chain(self.chain_id))
                chain, last = self._app.runner.run(op, on)
                if chain.state is not ChainState.OPEN:
                    return self._settle(last)
        raise self._too_late(timeout, stood_still(timeout, "await job.aresult()"))

    async def aresult(self, timeout: float | None = None, *, on: object = None) -> T_co:
        async with aclosing(self._app.runner.waiting.alooks(timeout)) as looks:
            async for _ in looks:
                op = self._checked(self._app.runner.store.chain(self.chain_id))
                chain, last = await self._app.runner.arun(op, on)
                if chain.state is not ChainState.OPEN:
                    return self._settle(last)
        raise self._too_late(timeout)

    def refresh(self, *, on: object = None) -> Job[T_co]:
        """Read the job anew; NotFound when it was rolled back, deleted or pruned."""
        op = self._app.runner.store.job(self.id, self._record.created_at)
        self._record = self._app.runner.run(op, on)
        return self

    async def arefresh(self, *, on: object = None) -> Job[T_co]:
        op = self._app.runner.store.job(self.id, self._record.created_at)
        self._record = await self._app.runner.arun(op, on)
        return self

    def cancel(
        self, reason: str | None = None, *, by: str | None = None, on: object = None
    ) -> Job[T_co]:
        """Cancel the job; a running handler is asked to stop, and what it returns is refused."""
        op = self._checked(self._app.runner.store.cancel(self.id, reason, by))
        return self._update(self._app.runner.run(op, on))

    async def acancel(
        self, reason: str | None = None, *, by: str | None = None, on: object = None
    ) -> Job[T_co]:
        op = self._checked(self._app.runner.store.cancel(self.id, reason, by))
        return self._update(await self._app.runner.arun(op, on))

    def retry(self, *, by: str | None = None, on: object = None) -> Job[T_co]:
        """Make a failed or cancelled job pending again with fresh attempts."""
        op = self._checked(self._app.runner.store.retry(self.id, by))
        return self._update(self._app.runner.run(op, on))

    async def aretry(self, *, by: str | None = None, on: object = None) -> Job[T_co]:
        op = self._checked(self._app.runner.store.retry(self.id, by))
        return self._update(await self._app.runner.arun(op, on))

    def _checked(self, op: Op[T]) -> Op[T]:
        """The operation, unless the id now belongs to another job: after a rollback it may."""

        def steps() -> Steps[T]:
            yield from self._app.runner.store.job(self.id, self._record.created_at)
            return (yield from op)

        return Op(op.name, steps, reads=op.reads, loss=op.loss)

    def _update(self, record: JobRecord) -> Job[T_co]:
        """Control of a chain's first job may act on its last one; this handle stays the first."""
        if record.id == self.id:
            self._record = record
        return self

    def _settle(self, last: JobRecord) -> T_co:
        if last.state is State.COMPLETED:
            return cast(T_co, self._app.decode_output(last.task, last.last_output))
        kind = ChainCancelled if last.state is State.CANCELLED else ChainFailed
        reason = f": {last.last_error}" if last.last_error else ""
        raise kind(
            f"chain {self.chain_id} {last.state} in job {last.id} ({last.task}){reason}",
            self.chain_id,
            last.last_error,
        )

    def _too_late(self, timeout: float | None, hint: str = "") -> WaitTimeout:
        return WaitTimeout(
            f"chain {self.chain_id} has not ended within {timeout:g} s; it goes on{hint}"
        )

    @property
    def record(self) -> JobRecord:
        return self._record

    @property
    def reason(self) -> str | None:
        """Why a pending job does not start, where that is known."""
        if self._record.parked_for == unknown_task(self.task):
            return f"no running worker knows task {self.task}"
        return None

    @property
    def attempt(self) -> int:
        """Number of the newest attempt; 0 before the first."""
        record = self._record
        return (record.last_number if record.attempt is None else record.attempt) or 0

    @property
    def open_blockers(self) -> int:
        """How many chains it still waits for."""
        return self._record.open_blockers or 0

    @property
    def continued_by(self) -> int | None:
        """The next job of the chain, when this one continued."""
        return None if self.state.open else self._record.continued_by

    @property
    def created_at(self) -> datetime:
        return to_datetime(self._record.created_at)

    @property
    def tick(self) -> datetime | None:
        """The tick of its schedule that it was stored for."""
        return to_datetime_or_none(self._record.tick)

    @property
    def run_at(self) -> datetime | None:
        """When it is due; None once it has ended."""
        return to_datetime_or_none(self._record.run_at)

    @property
    def expires_at(self) -> datetime | None:
        """When it is too late to start it."""
        return to_datetime_or_none(self._record.expires_at)

    @property
    def started_at(self) -> datetime | None:
        record = self._record
        return to_datetime_or_none(
            record.started_at if record.live_state is not None else record.last_started_at
        )

    @property
    def ended_at(self) -> datetime | None:
        return None if self.state.open else to_datetime_or_none(self._record.last_ended_at)

    @property
    def worker(self) -> str | None:
        record = self._record
        return record.worker if record.live_state is not None else record.last_worker

    @property
    def ended_by(self) -> str | None:
        """Who ended it from outside a worker."""
        return None if self.state.open else self._record.ended_by

    @property
    def output(self) -> Any:
        """The decoded output; None before the end, and for a job that continued."""
        if self.state is not State.COMPLETED:
            return None
        return self._app.decode_output(self.task, self._record.last_output)

    @property
    def error(self) -> str | None:
        """Error of the last ended attempt."""
        return self._record.last_error

    @property
    def progress(self) -> Progress | None:
        record = self._record
        if record.live_state is not None:
            return progress_of(record.progress, record.progress_text)
        return progress_of(record.last_progress, record.last_progress_text)

    def _repr_html_(self) -> str:
        from .tables import table_of

        return table_of([self])

    def __repr__(self) -> str:
        return f"<job {self.id} {self.task} {self.state}>"


class Chain:
    """Jobs continuing one another; named by the first one's id, ended as its last one ended."""

    __slots__ = ("_record", "last")

    id = Stored[int]()
    task = Stored[str]()
    state = Stored[ChainState]()
    label = Stored[str | None]()
    key = Stored[str | None]()
    trace = Traceparent()

    def __init__(self, app: Reading, record: ChainRecord, last: JobRecord | None = None) -> None:
        self._record = record
        self.last: Job[Any] | None = None if last is None else Job(app, last)

    @property
    def created_at(self) -> datetime:
        return to_datetime(self._record.created_at)

    @property
    def ended_at(self) -> datetime | None:
        return to_datetime_or_none(self._record.ended_at)

    @property
    def output(self) -> Any:
        """Output of the last job; None while open. Chains of a list do not carry it."""
        return None if self.last is None else self.last.output

    @property
    def error(self) -> str | None:
        return None if self.last is None else self.last.error

    def _repr_html_(self) -> str:
        from .tables import table_of

        return table_of([self])

    def __repr__(self) -> str:
        return f"<chain {self.id} {self.task} {self.state}>"
