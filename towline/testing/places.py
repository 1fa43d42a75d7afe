"""Where a drain happens: on a connection of ours, or in the test's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from msgspec import Struct

from ..app import Towline
from ..connections.base import Blocking
from ..errors import UnsupportedConnection
from ..operation import Op
from ..records import Ending
from ..worker.attempt import Attempt
from ..worker.ending import of_error
from .stand_in import StandIn

T = TypeVar("T")


class Around(Struct):
    """One attempt, and how it ended."""

    ending: Ending | None = None


class Place:
    """On ours: nothing of it can be broken by a handler."""

    @contextmanager
    def around(self, attempt: Attempt) -> Iterator[Around]:
        yield Around()

    def run(self, attempt: Attempt, runner: asyncio.Runner) -> Ending | None:
        return runner.run(attempt.arun())


class Theirs(Place):
    """On a blocking connection of the test, in its transaction if one is open."""

    def __init__(self, app: Towline, on: object) -> None:
        self._app = app
        self._on = on

    @contextmanager
    def around(self, attempt: Attempt) -> Iterator[Around]:
        """In a savepoint: a handler that breaks the transaction loses what it wrote, and fails."""
        around = Around()
        connection = self._app.runner.engine.recognise(self._on)
        if not (isinstance(connection, Blocking) and connection.in_transaction):
            yield around
            return
        try:
            with connection.savepoint():
                yield around
        except Exception as broken:
            if around.ending is None or around.ending.error is None:
                around.ending = of_error(attempt, broken)

    def run(self, attempt: Attempt, runner: asyncio.Runner) -> Ending | None:
        connection = self._app.runner.engine.recognise(self._on)
        if not (isinstance(connection, Blocking) and connection.called_back):
            return super().run(attempt, runner)
        from asgiref.sync import async_to_sync

        ending: Ending | None = async_to_sync(attempt.arun)()
        return ending


class OnConnection(StandIn):
    """Runs everything on one connection, unless an operation names another."""

    __slots__ = ("on",)

    def __init__(self, app: Towline, on: object) -> None:
        super().__init__(app)
        self.on = on

    def run(self, op: Op[T], on: object = None, *, patience: float | None = None) -> T:
        return self._real.run(op, self.on if on is None else on, patience=patience)

    async def arun(self, op: Op[T], on: object = None) -> T:
        return await self._real.arun(op, self.on if on is None else on)


@contextmanager
def place_of(app: Towline, on: object) -> Iterator[Place]:
    """Where a drain with this `on=` happens, for as long as it does."""
    if on is None:
        yield Place()
        return
    if not isinstance(app.runner.engine.recognise(on), Blocking):
        raise UnsupportedConnection("a drain needs a connection that blocks, not one to await")
    with OnConnection(app, on):
        yield Theirs(app, on)
