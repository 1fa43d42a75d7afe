"""`inline`: a block in which enqueueing runs the job at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..app import Towline
from ..operation import Op, Steps
from ..records import Enqueued
from ..store import read
from .draining import adrain, drain
from .stand_in import StandIn

T = TypeVar("T")


@contextmanager
def inline(app: Towline, *, raising: bool = True) -> Iterator[Towline]:
    """Drain after each enqueue, in the caller's thread, as if a worker were always ready.

    What is enqueued on a connection whose transaction is open waits for its commit, as always: it
    runs with the next enqueue that does not, or at the end of the block. A handler's error comes
    out of the enqueue. Jobs for later stay for later.
    """
    with Inline(app, raising) as runner:
        yield app
        runner.drain()


class Inline(StandIn):
    """Drains after each enqueue, and answers with the jobs as they are then."""

    __slots__ = ("_draining", "_raising")

    def __init__(self, app: Towline, raising: bool) -> None:
        super().__init__(app)
        self._raising = raising
        self._draining = False

    def run(self, op: Op[T], on: object = None, *, patience: float | None = None) -> T:
        answer = self._real.run(op, on, patience=patience)
        if self._may_drain(op, on):
            self.drain()
            answer = self._real.run(self._read_again(answer))
        return answer

    async def arun(self, op: Op[T], on: object = None) -> T:
        answer = await self._real.arun(op, on)
        if self._may_drain(op, on):
            self._draining = True
            try:
                await adrain(self._app, raising=self._raising)
            finally:
                self._draining = False
            answer = await self._real.arun(self._read_again(answer))
        return answer

    def drain(self) -> None:
        self._draining = True
        try:
            drain(self._app, raising=self._raising)
        finally:
            self._draining = False

    def _may_drain(self, op: Op[Any], on: object) -> bool:
        """A handler's own enqueues are run by the drain that runs the handler."""
        if op.name != "enqueue" or self._draining:
            return False
        return on is None or not self.engine.recognise(on).in_transaction

    def _read_again(self, answer: Any) -> Op[Any]:
        stored: list[Enqueued] = answer

        def steps() -> Steps[list[Enqueued]]:
            records = yield from read.records(self.store, [record.id for record, _ in stored])
            now = {record.id: record for record in records}
            return [Enqueued(now.get(a.record.id, a.record), a.created) for a in stored]

        return Op("enqueue", steps, reads=True)
