"""`inline`: a block in which enqueueing runs the job at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..app import Towline
from ..app.handles import Job
from ..task import Call
from .draining import adrain, drain


@contextmanager
def inline(app: Towline, *, raising: bool = True) -> Iterator[Towline]:
    """Drain after each enqueue, in the caller's thread, as if a worker were always ready.

    What is enqueued on a connection whose transaction is open waits for its commit, as always: it
    runs with the next enqueue that does not, or at the end of the block. A handler's error comes
    out of the enqueue. Jobs for later stay for later.
    """
    desk = Inline(app, raising)
    app.__dict__.update(enqueue_many=desk.enqueue_many, aenqueue_many=desk.aenqueue_many)
    try:
        yield app
        desk.drain()
    finally:
        for name in ("enqueue_many", "aenqueue_many"):
            app.__dict__.pop(name, None)


class Inline:
    """Stands in front of an app's `enqueue_many`."""

    def __init__(self, app: Towline, raising: bool) -> None:
        self._app = app
        self._raising = raising
        self._enqueue, self._aenqueue = app.enqueue_many, app.aenqueue_many
        self._draining = False

    def enqueue_many(self, calls: Iterable[Call[Any]], *, on: object = None) -> list[Job[Any]]:
        jobs = self._enqueue(calls, on=on)
        if self._may_run(on):
            self.drain()
            for job in jobs:
                job.refresh()
        return jobs

    async def aenqueue_many(
        self, calls: Iterable[Call[Any]], *, on: object = None
    ) -> list[Job[Any]]:
        jobs = await self._aenqueue(calls, on=on)
        if self._may_run(on):
            self._draining = True
            try:
                await adrain(self._app, raising=self._raising)
            finally:
                self._draining = False
            for job in jobs:
                await job.arefresh()
        return jobs

    def drain(self) -> None:
        self._draining = True
        try:
            drain(self._app, raising=self._raising)
        finally:
            self._draining = False

    def _may_run(self, on: object) -> bool:
        """A handler's own enqueues are run by the drain that runs the handler."""
        if self._draining:
            return False
        return on is None or not self._app.engine.recognise(on).in_transaction
