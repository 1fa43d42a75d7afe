"""Groups, and `map`: many calls whose ends are one matter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator, Sequence
from contextlib import aclosing, closing
from itertools import islice
from typing import Any, TypeVar

from ..errors import InvalidSetting
from ..records import Enqueued, NewBlocker, NewJob
from ..store.group import GroupRecord
from ..task import GROUP, Call, Task
from ..task.options import Options
from .batches import Batches
from .filters import check_id
from .group import Group
from .window import Window

T = TypeVar("T")

MOST_MEMBERS = 100_000


class Groups(Batches):
    """What one does with many calls at once."""

    built_in: dict[str, Task[..., Any]]

    def enqueue_group(
        self, calls: Sequence[Call[T]], *, then: Call[Any] | None = None, on: object = None
    ) -> Group[T]:
        """Store calls as a group, and behind them one job: `then`, by its own on_blocker_failure
        only if all have completed ("fail"), or when all have ended ("run"). Without it a job that
        does nothing, when all have ended. One transaction."""
        jobs = self._group_jobs(calls, then, on)
        return self._group(self._stored(jobs, on))

    async def aenqueue_group(
        self, calls: Sequence[Call[T]], *, then: Call[Any] | None = None, on: object = None
    ) -> Group[T]:
        jobs = self._group_jobs(calls, then, on)
        return self._group(await self._astored(jobs, on))

    def group(self, id: int, *, on: object = None) -> Group[Any]:
        """A group by the id of the job behind it; NotFound when there is none. Any job that waits
        for others is one, such as the continuation of a fan-out."""
        return Group(self, self.runner.run(self._store.group(check_id(id)), on))

    async def agroup(self, id: int, *, on: object = None) -> Group[Any]:
        return Group(self, await self.runner.arun(self._store.group(check_id(id)), on))

    def map(
        self, calls: Iterable[Call[T]], *, in_flight: int = 100, timeout: float | None = None
    ) -> Iterator[T]:
        """Store calls while their outputs are read, in their order, with at most so many open.

        The jobs are durable, this loop is not: what was stored goes on without it. With keys
        (scope="any") it can be repeated. A call that failed raises ChainFailed in its place, an
        error of the iterator comes after the outputs of what it gave before.
        """
        return self._map(Window(self, calls, in_flight, timeout))

    def amap(
        self, calls: Iterable[Call[T]], *, in_flight: int = 100, timeout: float | None = None
    ) -> AsyncIterator[T]:
        return self._amap(Window(self, calls, in_flight, timeout))

    # ---- shared by both twins

    def _group_jobs(
        self, calls: Iterable[Call[Any]], then: Call[Any] | None, on: object
    ) -> list[NewJob]:
        calls = list(calls)
        if len(calls) > MOST_MEMBERS:
            raise InvalidSetting(
                f"a group has at most {MOST_MEMBERS:,} members, not {len(calls):,}: make several, "
                "or use app.map()"
            )
        jobs = self._new_jobs(calls, on)
        if then is None:
            options = Options(queue=self._queue_of(calls), on_blocker_failure="run")
            last = Call(self.built_in[GROUP], "{}", options).new_job(())
        elif not isinstance(then, Call):
            raise InvalidSetting(
                f"then= is a call such as publish.call(7), not {type(then).__name__}"
            )
        elif then.options.after:
            raise InvalidSetting("then= waits for the members of its group and takes no after=")
        else:
            (last,) = self._new_jobs([then], on)
        last.blockers = [
            NewBlocker(index=index, trace=call.options.trace) for index, call in enumerate(calls)
        ]
        return [*jobs, last]

    def _queue_of(self, calls: Sequence[Call[Any]]) -> str:
        """Where the job behind these is claimed: by whoever works on the first of them."""
        if calls:
            return calls[0].options.queue or calls[0].task.queue
        queues = {task.queue for task in self.registry.values()} or {"default"}
        return "default" if "default" in queues else min(queues)

    def _group(self, answers: Sequence[Enqueued]) -> Group[Any]:
        last = answers[-1].record
        return Group(self, GroupRecord(last, last.blockers - (last.open_blockers or 0)))

    def _map(self, window: Window) -> Generator[Any]:
        run, store = self.runner.run, self._store
        while not window.over:
            if calls := window.next_calls():
                stored = self._stored(self._new_jobs(calls, None))
                window.stored(islice(stored, len(calls)))
            yield from window.outputs()
            if not (asked := window.open):
                continue
            with closing(self.runner.waiting.looks(window.left)) as looks:
                for _ in looks:
                    if window.heard(asked, run(store.chain_ends(asked))):
                        break
                else:
                    raise window.too_late()

    async def _amap(self, window: Window) -> AsyncGenerator[Any]:
        run, store = self.runner.arun, self._store
        while not window.over:
            if calls := window.next_calls():
                stored = await self._astored(self._new_jobs(calls, None))
                window.stored(islice(stored, len(calls)))
            for output in window.outputs():
                yield output
            if not (asked := window.open):
                continue
            async with aclosing(self.runner.waiting.alooks(window.left)) as looks:
                async for _ in looks:
                    if window.heard(asked, await run(store.chain_ends(asked))):
                        break
                else:
                    raise window.too_late()
