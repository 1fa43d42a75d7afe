"""What callers' connections to PostgreSQL have in common, whatever the driver.

What an operation does depends on where the connection stands:

    in a transaction                     a savepoint; the caller commits
    idle, the driver would open one      it does, at our first statement; left open for the caller
    idle in autocommit                   BEGIN … COMMIT, a transaction of its own

An operation that met others crosswise (a deadlock) is undone and run again, a few times. Those who
share a connection do one operation after the other, each of them whole.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from ..migrate import applied_to
from ..operation import AwaitedExecute, Execute, Op, adrive, compose, drive, enclose
from ..sql import Queries, Query, Row, Statement
from .refusal import must_be_awaited, of_another_database

T = TypeVar("T")

DEADLOCK = "40P01"
MET_ANOTHER = frozenset({DEADLOCK, "40001"})  # another transaction: deadlock, serialization
# Seconds to draw from before an operation that met others crosswise is run again.
PAUSES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.2, 0.2)

SAVEPOINT = Query("savepoint", "SAVEPOINT towline")()
RELEASE = Query("release", "RELEASE SAVEPOINT towline")()
BACK = Query("rollback_to", "ROLLBACK TO SAVEPOINT towline")()
# The number of the caller's own transaction, as messages show it, if it has written anything.
TRANSACTION = Query(
    "transaction",
    "SELECT (pg_current_xact_id_if_assigned()::text::bigint % 4294967296)::text",
)()
BEGIN = Query("begin", "BEGIN")()
BEGIN_OURS = Query("begin_ours", "BEGIN ISOLATION LEVEL READ COMMITTED")()
COMMIT = Query("commit", "COMMIT")()
ROLLBACK = Query("rollback", "ROLLBACK")()

_encode = msgspec.json.Encoder().encode
_new_lock = threading.Lock()
_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_awaited_locks: WeakKeyDictionary[Any, asyncio.Lock] = WeakKeyDictionary()


class Placed(ABC):
    """A connection that knows where it stands."""

    def __init__(self, raw: Any, sql: Queries) -> None:
        self.raw = raw
        self._sql = sql

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @property
    @abstractmethod
    def autocommits(self) -> bool:
        """Whether a statement commits by itself when no transaction is open."""

    @property
    def database(self) -> str | None:
        """The name of its database, if the driver knows it."""
        return None

    def check_database(self, name: str) -> None:
        """Refuse it if it leads to a database of another name."""
        if (own := self.database) is not None and own != name:
            raise of_another_database(own, name)

    def in_place(self, op: Op[T]) -> Op[T]:
        """The operation with what this connection needs around it."""
        if self.in_transaction:
            if op.reads or op.single:
                return op
            return enclose(op, [SAVEPOINT], [RELEASE], [BACK, RELEASE])
        if self.autocommits and op.single:
            return op
        if self.autocommits:
            return enclose(op, [BEGIN_OURS], [COMMIT], [ROLLBACK])
        return enclose(op, undo=[ROLLBACK])

    def _look(self) -> Op[set[str] | None]:
        """Which migrations this connection's database has; leaves no transaction behind."""
        op = compose("look", lambda: applied_to(self._sql), reads=True)
        if self.in_transaction or self.autocommits:
            return op
        return enclose(op, after=[ROLLBACK], undo=[ROLLBACK])


class Blocking(Placed):
    """A connection of a driver that blocks; it belongs to the thread that uses it."""

    @abstractmethod
    def _cursor(self) -> AbstractContextManager[Execute]:
        """Something that runs statements, out of reach of the caller's settings."""

    def run(self, op: Op[T]) -> T:
        with _whole(self.raw), self._cursor() as execute:
            for pause in PAUSES:
                try:
                    return drive(self.in_place(op), execute)
                except Exception as error:
                    if sqlstate(error) != DEADLOCK or self._waited_for(error, execute):
                        raise
                time.sleep(random.uniform(0, pause))  # all of ours is undone, its locks let go
            return drive(self.in_place(op), execute)

    def _waited_for(self, error: Exception, execute: Execute) -> bool:
        return self.in_transaction and _names(error, execute(TRANSACTION))

    async def arun(self, op: Op[T]) -> T:
        """There is nothing to wait for."""
        return self.run(op)

    def begin(self) -> bool:
        if self.in_transaction:
            return False
        if self.autocommits:  # else the driver does, at the next statement
            with self._cursor() as execute:
                execute(BEGIN)
        return True

    async def abegin(self) -> bool:
        return self.begin()

    def end(self, *, commit: bool) -> None:
        with self._cursor() as execute:
            execute(COMMIT if commit else ROLLBACK)

    async def aend(self, *, commit: bool) -> None:
        self.end(commit=commit)

    def migrations(self) -> set[str] | None:
        with _whole(self.raw), self._cursor() as execute:
            return drive(self._look(), execute)

    async def amigrations(self) -> set[str] | None:
        return self.migrations()


class Awaiting(Placed):
    """A connection of a driver that awaits; only the awaiting face can use it."""

    @abstractmethod
    def _cursor(self) -> AbstractAsyncContextManager[AwaitedExecute]: ...

    def run(self, op: Op[T]) -> T:
        raise must_be_awaited(op.name, self.raw)

    def migrations(self) -> set[str] | None:
        raise must_be_awaited("looking at the schema", self.raw)

    async def arun(self, op: Op[T]) -> T:
        async with _awaited_whole(self.raw), self._cursor() as execute:
            for pause in PAUSES:
                try:
                    return await adrive(self.in_place(op), execute)
                except Exception as error:
                    if sqlstate(error) != DEADLOCK or await self._waited_for(error, execute):
                        raise
                await asyncio.sleep(random.uniform(0, pause))
            return await adrive(self.in_place(op), execute)

    async def _waited_for(self, error: Exception, execute: AwaitedExecute) -> bool:
        return self.in_transaction and _names(error, await execute(TRANSACTION))

    def begin(self) -> bool:
        raise must_be_awaited("a transaction", self.raw)

    async def abegin(self) -> bool:
        if self.in_transaction:
            return False
        if self.autocommits:
            async with self._cursor() as execute:
                await execute(BEGIN)
        return True

    def end(self, *, commit: bool) -> None:
        raise must_be_awaited("a transaction", self.raw)

    async def aend(self, *, commit: bool) -> None:
        async with self._cursor() as execute:
            await execute(COMMIT if commit else ROLLBACK)

    async def amigrations(self) -> set[str] | None:
        async with _awaited_whole(self.raw), self._cursor() as execute:
            return await adrive(self._look(), execute)


def sqlstate(error: BaseException) -> str | None:
    """The code of a server's error, as any of the drivers says it."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return code if isinstance(code, str) else None


def _names(error: Exception, rows: list[Row]) -> bool:
    """Whether somebody waits for what the caller's transaction held before our operation: it was
    undone, its locks are let go, and he would wait on. Running it again would only meet him again.

    The server says who waits for which transaction; ours had one of its own, below the savepoint.
    """
    detail = getattr(error, "detail", None) or getattr(
        getattr(error, "diag", None), "message_detail", None
    )
    ((own,),) = rows
    return own is not None and own in re.findall(r"\d+", detail or "")


def parameters(statement: Statement) -> Sequence[Any]:
    return statement.params if statement.rows is None else (_as_records(statement),)


def _as_records(statement: Statement) -> str:
    """Many rows as one parameter; numbered where the statement asks for it."""
    picks = statement.picks
    rows = statement.rows or ()
    records: list[dict[str, Any]] = [{name: row[i] for name, i in picks} for row in rows]
    if "n" in statement.query.records:
        for number, record in enumerate(records):
            record["n"] = number
    return _encode(records).decode()


def answer(statement: Statement, rows: list[Row]) -> list[Row]:
    """What the store is told: rows, or of each row that was sent whether it changed something."""
    if not statement.counted:
        return rows
    passed = {number for (number,) in rows}
    return [(int(number in passed),) for number in range(len(statement.rows or ()))]


def _whole(raw: Any) -> threading.RLock:
    with _new_lock:
        return _locks.setdefault(raw, threading.RLock())


def _awaited_whole(raw: Any) -> asyncio.Lock:
    return _awaited_locks.setdefault(raw, asyncio.Lock())
