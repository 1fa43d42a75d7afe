"""A group as callers hold it: its members, and the job behind them, whose id names it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from ..errors import (
    ChainCancelled,
    ChainFailed,
    InvalidSetting,
    InvalidState,
    NotFound,
    WaitTimeout,
)
from ..model import ChainState, State
from ..naming import check_patience
from ..operation import Op
from ..records import BlockerRecord, JobRecord
from ..runner import Loop
from ..store.group import GroupRecord
from ..task.context import Failure
from ..task.stored import Stored
from ..times import to_datetime
from .handles import Job

if TYPE_CHECKING:
    from .reading import Reading

T_co = TypeVar("T_co", covariant=True)

PAGE = 500  # members that are read at a time
CANCEL_PAGE = 200  # members that one transaction cancels
Failures = Literal["raise", "return"]


class Group(Generic[T_co]):
    """Jobs that belong together, as they stood when it was read: `total`, `ended`, and the `state`
    of the job behind them."""

    __slots__ = ("_app", "_record", "ended")

    id = Stored[int]()
    task = Stored[str]()
    queue = Stored[str]()
    state = Stored[State]()

    def __init__(self, app: Reading, record: GroupRecord) -> None:
        self._app = app
        self._record: JobRecord = record.last
        self.ended: int = record.ended

    @property
    def total(self) -> int:
        """How many members it has."""
        return self._record.blockers

    @property
    def created_at(self) -> datetime:
        return to_datetime(self._record.created_at)

    @property
    def last(self) -> Job[Any]:
        """The job behind the members."""
        return Job(self._app, self._record)

    def refresh(self, *, on: object = None) -> Group[T_co]:
        """Read it anew; NotFound when it was rolled back, deleted or pruned."""
        op = self._app.runner.store.group(self.id, self._record.created_at)
        return self._update(self._app.runner.run(op, on))

    async def arefresh(self, *, on: object = None) -> Group[T_co]:
        op = self._app.runner.store.group(self.id, self._record.created_at)
        return self._update(await self._app.runner.arun(op, on))

    def _update(self, read: GroupRecord) -> Group[T_co]:
        self._record, self.ended = read
        return self

    def failed(self, *, on: object = None) -> int:
        """How many members have failed or were cancelled. It looks at each of them: unlike `ended`
        that takes longer the more there are."""
        return self._app.runner.run_each(self._failed(), on)

    async def afailed(self, *, on: object = None) -> int:
        return await self._app.runner.arun_each(self._failed(), on)

    def _failed(self) -> Loop[int]:
        yield self._same
        number: int = yield self._app.runner.store.failed_members(self.id)
        return number

    @property
    def _same(self) -> Op[JobRecord]:
        """It is there; after a rollback the id may be another's, and then it is not found."""
        return self._app.runner.store.job(self.id, self._record.created_at)

    def cancel(
        self, reason: str | None = None, *, by: str | None = None, on: object = None
    ) -> Group[T_co]:
        """Cancel the job behind, then every open member, a page at a time."""
        self._app.runner.run_each(self._cancel(reason, by), on)
        return self.refresh(on=on)

    async def acancel(
        self, reason: str | None = None, *, by: str | None = None, on: object = None
    ) -> Group[T_co]:
        await self._app.runner.arun_each(self._cancel(reason, by), on)
        return await self.arefresh(on=on)

    def _cancel(self, reason: str | None, by: str | None) -> Loop[int]:
        store = self._app.runner.store
        yield self._same
        try:
            yield store.cancel(self.id, reason, by)
        except InvalidState:  # what is behind the members has ended
            pass
        number: int = 0
        first: int | None = 0
        while first is not None:
            page = yield store.cancel_members(self.id, first, CANCEL_PAGE, reason, by)
            number += page.number
            first = page.next
        return number

    # ---- results

    @overload
    def results(
        self, timeout: float | None = None, *, failures: Literal["raise"] = "raise",
        on: object = None,
    ) -> Iterator[T_co]: ...  # fmt: skip
    @overload
    def results(
        self, timeout: float | None = None, *, failures: Literal["return"], on: object = None
    ) -> Iterator[T_co | Failure]: ...
    def results(
        self, timeout: float | None = None, *, failures: Failures = "raise", on: object = None
    ) -> Iterator[T_co | Failure]:
        """The members' outputs in the order given, each as soon as those before it are there.

        A page at a time is read, so that there may be any number of them. A member that failed
        raises ChainFailed, or with failures="return" arrives as a Failure. WaitTimeout when not
        all have ended in so many seconds.
        """
        return self._results(Pages(self, timeout, failures), on)

    @overload
    def aresults(
        self, timeout: float | None = None, *, failures: Literal["raise"] = "raise",
        on: object = None,
    ) -> AsyncIterator[T_co]: ...  # fmt: skip
    @overload
    def aresults(
        self, timeout: float | None = None, *, failures: Literal["return"], on: object = None
    ) -> AsyncIterator[T_co | Failure]: ...
    def aresults(
        self, timeout: float | None = None, *, failures: Failures = "raise", on: object = None
    ) -> AsyncIterator[T_co | Failure]:
        return self._aresults(Pages(self, timeout, failures), on)

    def _results(self, pages: Pages, on: object) -> Generator[Any]:
        runner, store = self._app.runner, self._app.runner.store
        runner.run(self._same, on)
        while pages.position < self.total:
            page = runner.run(store.members(self.id, pages.position, pages.size), on)
            yield from pages.outputs(page)
            if not pages.stalled:
                continue
            with closing(runner.waiting.looks(pages.left)) as looks:
                for _ in looks:
                    if pages.is_next(runner.run(store.members(self.id, pages.position, 1), on)):
                        break
                else:
                    raise pages.too_late()

    async def _aresults(self, pages: Pages, on: object) -> AsyncGenerator[Any]:
        runner, store = self._app.runner, self._app.runner.store
        await runner.arun(self._same, on)
        while pages.position < self.total:
            page = await runner.arun(store.members(self.id, pages.position, pages.size), on)
            for output in pages.outputs(page):
                yield output
            if not pages.stalled:
                continue
            async with aclosing(runner.waiting.alooks(pages.left)) as looks:
                async for _ in looks:
                    one = store.members(self.id, pages.position, 1)
                    if pages.is_next(await runner.arun(one, on)):
                        break
                else:
                    raise pages.too_late()

    def __repr__(self) -> str:
        return f"<group {self.id} {self.state}, {self.ended} of {self.total} ended>"


class Pages:
    """How far somebody has read the results of a group, and how much to read next."""

    def __init__(self, group: Group[Any], timeout: float | None, failures: Failures) -> None:
        if failures not in ("raise", "return"):
            raise InvalidSetting(f'failures is "raise" or "return", not {failures!r}')
        check_patience(timeout)
        self._group = group
        self._failures: Failures = failures
        self._timeout = timeout
        self._until = None if timeout is None else time.monotonic() + timeout
        self.position = 0
        self.size = PAGE
        self.stalled = False  # the next has not ended

    @property
    def left(self) -> float | None:
        return None if self._until is None else max(self._until - time.monotonic(), 0.0)

    def outputs(self, page: list[BlockerRecord]) -> Iterator[Any]:
        """Those of the page that can be given out, up to the first that has not ended."""
        self._check(page)
        self.stalled = False
        for member in page:
            self._check([member])
            if member.state is ChainState.OPEN:
                # What is behind it was read in vain: the next page is small, and grows again.
                self.stalled, self.size = True, 1
                return
            self.position += 1
            yield output_of(self._group._app, member, self._failures)
        self.size = min(2 * self.size, PAGE)

    def is_next(self, page: list[BlockerRecord]) -> bool:
        """Whether the next has ended."""
        self._check(page)
        return page[0].state is not ChainState.OPEN

    def _check(self, page: list[BlockerRecord]) -> None:
        if not page or page[0].position != self.position:
            raise NotFound(
                f"member {self.position} of group {self._group.id} is gone: deleted or pruned"
            )

    def too_late(self) -> WaitTimeout:
        group = self._group
        return WaitTimeout(
            f"group {group.id} has not ended within {self._timeout:g} s: {self.position} of "
            f"{group.total} results were given out; it goes on"
        )


def output_of(app: Reading, ended: BlockerRecord, failures: Failures = "raise") -> Any:
    """What a chain ended with."""
    if ended.state is ChainState.COMPLETED:
        return app.decode_output(ended.task or "", ended.output)
    if failures == "return":
        return Failure(ended.chain_id, ended.state, ended.error)
    kind = ChainCancelled if ended.state is ChainState.CANCELLED else ChainFailed
    reason = f": {ended.error}" if ended.error else ""
    text = f"chain {ended.chain_id} {ended.state} ({ended.task}){reason}"
    raise kind(text, ended.chain_id, ended.error)
