"""Callers' connections, whatever the driver: what an operation does on one that it was handed.

    in a transaction                     a savepoint, where it needs one; the caller commits
    idle, the driver would open one      opened the way the driver would, left open for the caller
    idle in autocommit                   a transaction of its own

A connection never commits, rolls back or closes what it did not begin. A driver's file says where a
connection stands and how statements are run on it; its database, which statements begin and end a
transaction there. The rest is here, once for each colour: blocking and awaiting.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any, NamedTuple, TypeVar

from ..errors import UnsupportedConnection
from ..operation import AwaitedExecute, Execute, Op, Query, Statement, Steps, adrive, drive

T = TypeVar("T")

SAVEPOINT = Query("savepoint", "SAVEPOINT towline")()
RELEASE = Query("release", "RELEASE SAVEPOINT towline")()
BACK = Query("rollback_to", "ROLLBACK TO SAVEPOINT towline")()
BEGIN = Query("begin", "BEGIN")()
COMMIT = Query("commit", "COMMIT")()
ROLLBACK = Query("rollback", "ROLLBACK")()
BEFORE = Query("before", "SAVEPOINT towline_before")()
KEEP = Query("keep", "RELEASE SAVEPOINT towline_before")()
PROBE = Query("probe", "SELECT 1")()
UNDO = Query("undo", "ROLLBACK TO SAVEPOINT towline_before")()


class Around(NamedTuple):
    """The statements around an operation: `undo` runs when it fails after `begin`."""

    begin: Statement | None = None
    end: Statement | None = None
    undo: tuple[Statement, ...] = ()


AS_IT_IS = Around()
IN_SAVEPOINT = Around(SAVEPOINT, RELEASE, (BACK, RELEASE))


class Connection(ABC):
    """A caller's open connection, as the runner uses it."""

    raw: Any

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @abstractmethod
    def run(self, op: Op[T]) -> T: ...

    @abstractmethod
    async def arun(self, op: Op[T]) -> T: ...

    @abstractmethod
    def begin(self) -> bool:
        """Open a transaction, unless the caller has one; True when it is ours to end."""

    @abstractmethod
    async def abegin(self) -> bool: ...

    @abstractmethod
    def end(self, *, commit: bool) -> None:
        """End the transaction that `begin` opened."""

    @abstractmethod
    async def aend(self, *, commit: bool) -> None: ...


# ---- the colours


class Blocking(Connection):
    """A connection that blocks; the awaiting face can use it too, and there is nothing to await."""

    called_back = False
    """Whether queries of code that awaits come back to the thread of this connection (asgiref)."""

    async def arun(self, op: Op[T]) -> T:
        return self.run(op)

    async def abegin(self) -> bool:
        return self.begin()

    async def aend(self, *, commit: bool) -> None:
        self.end(commit=commit)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A block of the caller's code in the caller's transaction, which it cannot break: then
        what it wrote is undone, and why is raised. Otherwise all of it stays, also when it raises,
        as if there were no transaction around."""
        self._say(BEFORE)
        try:
            yield
        finally:
            try:
                self._say(KEEP)
            except Exception:
                self._undo()
                raise

    def _undo(self) -> None:
        self._say(UNDO)
        self._say(KEEP)

    def _say(self, statement: Statement) -> None:
        def steps() -> Steps[None]:
            yield statement

        self.run(Op(statement.query.name, steps, reads=True, single=True))


class Awaiting(Connection):
    """A connection that only the awaiting face can use."""

    def run(self, op: Op[T]) -> T:
        raise self._must_be_awaited(op.name)

    def begin(self) -> bool:
        raise self._must_be_awaited("a transaction")

    def end(self, *, commit: bool) -> None:
        raise self._must_be_awaited("a transaction")

    def _must_be_awaited(self, what: str) -> UnsupportedConnection:
        kind = type(self.raw)
        return UnsupportedConnection(
            f"{what} on {kind.__module__.partition('.')[0]}.{kind.__qualname__} must be awaited: "
            "use the method whose name begins with a, such as `await task.aenqueue(…)`"
        )


class Enclosing(Awaiting):
    """An awaiting connection around a blocking one, which is handed whole operations."""

    @abstractmethod
    async def inside(self, act: Callable[[Connection], T]) -> T:
        """Call it with the blocking connection, where that may be used."""

    async def arun(self, op: Op[T]) -> T:
        return await self.inside(lambda connection: connection.run(op))

    async def abegin(self) -> bool:
        return await self.inside(lambda connection: connection.begin())

    async def aend(self, *, commit: bool) -> None:
        await self.inside(lambda connection: connection.end(commit=commit))


# ---- the frame


class CallerConnection(Connection):
    """A driver's connection, and the frame that an operation has on it."""

    pauses: Sequence[float] = ()
    """Seconds to draw from before an operation that failed is run again, if it may be."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    @property
    @abstractmethod
    def autocommits(self) -> bool:
        """Whether a statement commits by itself when no transaction is open."""

    @abstractmethod
    def around(self, op: Op[Any]) -> Around:
        """What an operation has around it when the connection is idle."""

    @abstractmethod
    def opening(self) -> Statement | None:
        """What opens a transaction when the connection is idle; None where the driver will."""

    def ready(self, op: Op[Any], inside: bool) -> Steps[None]:
        """What the database needs before the operation; `inside` the caller's transaction."""
        yield from ()

    def repeats(self, error: Exception) -> Steps[bool]:
        """Whether an operation that failed with this, and is undone, may be run again."""
        yield from ()
        return False

    def framed(self, op: Op[T]) -> Steps[T]:
        """The operation with what it needs around it, where the connection stands now."""
        inside = self.in_transaction
        if not inside:
            begin, end, undo = self.around(op)
        elif op.reads or op.single:
            begin, end, undo = AS_IT_IS
        else:
            begin, end, undo = IN_SAVEPOINT
        if begin is not None:
            yield from _begun(begin, () if inside else undo)
        ending = False
        try:
            yield from self.ready(op, inside)
            answer = yield from op
            ending = True
            if end is not None:
                yield end
        except GeneratorExit:  # it is run no further
            raise
        except BaseException as error:
            # Interrupted, our savepoint may be gone already: there is no going back to it.
            released = inside and ending and not isinstance(error, Exception)
            if not (released and (yield from _is_sound())):
                yield from _undone(undo)
            raise
        return answer

    def opened(self) -> Steps[bool]:
        """A transaction, unless the caller has one; True when it was opened here."""
        if self.in_transaction:
            return False
        if (opening := self.opening()) is not None:
            yield from _begun(opening, (ROLLBACK,))
        return True

    def ended(self, commit: bool) -> Steps[None]:
        """What `opened` has opened is over, one way or the other."""
        try:
            yield COMMIT if commit else ROLLBACK
        except GeneratorExit:
            raise
        except BaseException:  # also SQLite's own: refused by a deferred constraint, it goes on
            yield from _undone((ROLLBACK,))
            raise

    def _repeated(self, error: Exception) -> Op[bool]:
        return Op("repeat", self.repeats, error, reads=True)


def _begun(begin: Statement, undo: Sequence[Statement]) -> Steps[None]:
    """Run it. Who is interrupted meanwhile (Ctrl-C, a cancelled task) cannot know whether it was
    run, so what may be open is undone: else what the caller writes next would be in a transaction
    that he knows nothing of. An error says that it was not run."""
    try:
        yield begin
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        yield from _undone(undo)
        raise


def _is_sound() -> Steps[bool]:
    """Whether the transaction takes statements: a server gives up one in which any has failed."""
    try:
        yield PROBE
    except Exception:
        return False
    return True


def _undone(undo: Sequence[Statement]) -> Steps[None]:
    try:
        for statement in undo:  # noqa: UP028 - rows are sent back
            yield statement
    except Exception:  # nothing is open any more; the first error says why
        pass


class BlockingDriver(CallerConnection, Blocking):
    """The frame on a driver that blocks."""

    @abstractmethod
    def cursor(self) -> AbstractContextManager[Execute]:
        """What runs statements, out of reach of the caller's settings and of other users of the
        connection: each operation is whole."""

    def run(self, op: Op[T]) -> T:
        with self.cursor() as execute:
            for pause in self.pauses:
                try:
                    return drive(op, execute, self.framed)
                except Exception as error:
                    if not drive(self._repeated(error), execute):
                        raise
                time.sleep(random.uniform(0, pause))
            return drive(op, execute, self.framed)

    def begin(self) -> bool:
        with self.cursor() as execute:
            return drive(Op("begin", self.opened), execute)

    def end(self, *, commit: bool) -> None:
        with self.cursor() as execute:
            drive(Op("end", self.ended, commit), execute)


class AwaitingDriver(CallerConnection, Awaiting):
    """The frame on a driver that awaits."""

    @abstractmethod
    def cursor(self) -> AbstractAsyncContextManager[AwaitedExecute]: ...

    async def arun(self, op: Op[T]) -> T:
        async with self.cursor() as execute:
            for pause in self.pauses:
                try:
                    return await adrive(op, execute, self.framed)
                except Exception as error:
                    if not await adrive(self._repeated(error), execute):
                        raise
                import asyncio  # who awaits this has it

                await asyncio.sleep(random.uniform(0, pause))
            return await adrive(op, execute, self.framed)

    async def abegin(self) -> bool:
        async with self.cursor() as execute:
            return await adrive(Op("begin", self.opened), execute)

    async def aend(self, *, commit: bool) -> None:
        async with self.cursor() as execute:
            await adrive(Op("end", self.ended, commit), execute)
