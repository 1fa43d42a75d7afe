"""psycopg 3, blocking and awaiting, as the caller configured it.

What an operation does depends on where the connection stands:

    in a transaction                     a savepoint; the caller commits
    idle, the driver would open one      it does, at our first statement; left open for the caller
    idle in autocommit                   BEGIN … COMMIT, a transaction of its own

An operation that met others crosswise (a deadlock) is undone and run again, a few times.
Row factories, cursor classes, loaders and dumpers of the caller neither disturb us nor are changed.
Nothing is prepared on the server: a pooler may stand between.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec
import psycopg
from psycopg import adapt, postgres
from psycopg.errors import DeadlockDetected
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from ..errors import UnsupportedConnection
from ..migrate import applied_to
from ..operation import Op, adrive, compose, drive, enclose
from ..sql import Queries, Query, Row, Statement

T = TypeVar("T")

COPY_FROM = 200  # rows from which COPY is quicker than one JSON parameter

# Seconds to draw from before an operation that met others crosswise is run again.
PAUSES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.2, 0.2)

_encode = msgspec.json.Encoder().encode
_new_lock = threading.Lock()
_locks: WeakKeyDictionary[psycopg.Connection[Any], threading.RLock] = WeakKeyDictionary()
_awaited_locks: WeakKeyDictionary[psycopg.AsyncConnection[Any], asyncio.Lock] = WeakKeyDictionary()
SAVEPOINT = Query("savepoint", "SAVEPOINT windlass")()
RELEASE = Query("release", "RELEASE SAVEPOINT windlass")()
BACK = Query("rollback_to", "ROLLBACK TO SAVEPOINT windlass")()
BEGIN = Query("begin", "BEGIN")()
COMMIT = Query("commit", "COMMIT")()
ROLLBACK = Query("rollback", "ROLLBACK")()


@cache
def plain_adapters() -> adapt.AdaptersMap:
    """Types as psycopg ships them, whatever the application has registered."""
    adapters = adapt.AdaptersMap(types=psycopg.postgres.types)
    postgres.register_default_adapters(adapters)
    return adapters


class PlainCursor(psycopg.Cursor[Row]):
    """A cursor that the caller's settings do not reach."""

    @property
    def adapters(self) -> adapt.AdaptersMap:
        return plain_adapters()


class PlainAsyncCursor(psycopg.AsyncCursor[Row]):
    """The same for awaiting connections."""

    @property
    def adapters(self) -> adapt.AdaptersMap:
        return plain_adapters()


def as_records(statement: Statement) -> str:
    """Many rows as one parameter; numbered where the statement asks for it."""
    picks = statement.picks
    rows = statement.rows or ()
    records: list[dict[str, Any]] = [{name: row[i] for name, i in picks} for row in rows]
    if "n" in statement.query.records:
        for number, record in enumerate(records):
            record["n"] = number
    return _encode(records).decode()


def parameters(statement: Statement) -> Sequence[Any]:
    return statement.params if statement.rows is None else (as_records(statement),)


def answer(statement: Statement, rows: list[Row]) -> list[Row]:
    """What the store is told: rows, or of each row that was sent whether it changed something."""
    if not statement.counted:
        return rows
    passed = {number for (number,) in rows}
    return [(int(number in passed),) for number in range(len(statement.rows or ()))]


def copied(statement: Statement) -> tuple[str, list[str], Iterator[Row]] | None:
    """The text, types and rows of a COPY, when a statement is a plain insert of many rows."""
    copy = statement.query.copy
    if copy is None or statement.rows is None or len(statement.rows) < COPY_FROM:
        return None
    table, columns, types = copy
    places = dict(statement.picks)
    order = [places[column] for column in columns]
    rows = statement.rows
    text = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT binary)"
    if order == list(range(len(order))):
        return text, list(types), iter(rows)
    return text, list(types), (tuple([row[i] for i in order]) for row in rows)


def execute(cursor: psycopg.Cursor[Row], statement: Statement, prepare: bool | None) -> list[Row]:
    """Run one statement and read all rows."""
    pipelined = in_pipeline(cursor.connection)
    if not pipelined and (bulk := copied(statement)) is not None:
        text, types, rows = bulk
        with cursor.copy(text.encode()) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)
        return []
    query = statement.query.format.encode()
    with cursor.connection.pipeline() if pipelined else nullcontext():  # its end waits for answers
        cursor.execute(query, parameters(statement), prepare=prepare)
    return answer(statement, cursor.fetchall()) if cursor.description else []


async def aexecute(cursor: psycopg.AsyncCursor[Row], statement: Statement) -> list[Row]:
    pipelined = in_pipeline(cursor.connection)
    if not pipelined and (bulk := copied(statement)) is not None:
        text, types, rows = bulk
        async with cursor.copy(text.encode()) as copy:
            copy.set_types(types)
            for row in rows:
                await copy.write_row(row)
        return []
    query = statement.query.format.encode()
    async with cursor.connection.pipeline() if pipelined else nullcontext():
        await cursor.execute(query, parameters(statement), prepare=False)
    return answer(statement, await cursor.fetchall()) if cursor.description else []


def in_pipeline(raw: psycopg.BaseConnection[Any]) -> bool:
    return raw.pgconn.pipeline_status != PipelineStatus.OFF


def in_place(op: Op[T], raw: psycopg.BaseConnection[Any]) -> Op[T]:
    """The operation with what this connection needs around it."""
    if raw.info.transaction_status is not TransactionStatus.IDLE:
        if op.reads or op.single:
            return op
        return enclose(op, [SAVEPOINT], [RELEASE], [BACK, RELEASE])
    if raw.autocommit and op.single:
        return op
    if raw.autocommit:
        return enclose(op, [BEGIN], [COMMIT], [ROLLBACK])
    return enclose(op, undo=[ROLLBACK])


def look(sql: Queries, raw: psycopg.BaseConnection[Any]) -> Op[set[str] | None]:
    """Which migrations this connection's database has; leaves no transaction behind."""
    op = compose("look", lambda: applied_to(sql), reads=True)
    if raw.info.transaction_status is TransactionStatus.IDLE and not raw.autocommit:
        return enclose(op, after=[ROLLBACK], undo=[ROLLBACK])
    return op


class PsycopgConnection:
    """A caller's psycopg.Connection."""

    def __init__(self, raw: psycopg.Connection[Any], sql: Queries) -> None:
        self.raw = raw
        self._sql = sql

    @property
    def in_transaction(self) -> bool:
        return self.raw.info.transaction_status is not TransactionStatus.IDLE

    def run(self, op: Op[T]) -> T:
        if in_pipeline(self.raw):
            with self.raw.pipeline():  # what was sent before is answered, so we know where we are
                pass
        with _whole(self.raw), self._cursor() as cursor:
            for pause in PAUSES:
                try:
                    return drive(in_place(op, self.raw), lambda s: execute(cursor, s, False))
                except DeadlockDetected:  # all of ours is undone, and its locks are let go
                    time.sleep(random.uniform(0, pause))
            return drive(in_place(op, self.raw), lambda s: execute(cursor, s, False))

    async def arun(self, op: Op[T]) -> T:
        """A blocking connection belongs to the thread that awaits; nothing to wait for."""
        return self.run(op)

    def migrations(self) -> set[str] | None:
        with self._cursor() as cursor:
            return drive(look(self._sql, self.raw), lambda s: execute(cursor, s, False))

    async def amigrations(self) -> set[str] | None:
        return self.migrations()

    @contextmanager
    def _cursor(self) -> Iterator[PlainCursor]:
        with PlainCursor(self.raw, row_factory=tuple_row) as cursor:
            yield cursor


class AsyncPsycopgConnection:
    """A caller's psycopg.AsyncConnection; only the awaiting face can use it."""

    def __init__(self, raw: psycopg.AsyncConnection[Any], sql: Queries) -> None:
        self.raw = raw
        self._sql = sql

    @property
    def in_transaction(self) -> bool:
        return self.raw.info.transaction_status is not TransactionStatus.IDLE

    def run(self, op: Op[T]) -> T:
        raise must_be_awaited(op.name)

    def migrations(self) -> set[str] | None:
        raise must_be_awaited("looking at the schema")

    async def arun(self, op: Op[T]) -> T:
        if in_pipeline(self.raw):
            async with self.raw.pipeline():
                pass
        async with _awaited_whole(self.raw):
            for pause in PAUSES:
                try:
                    return await self._drive(in_place(op, self.raw))
                except DeadlockDetected:
                    await asyncio.sleep(random.uniform(0, pause))
            return await self._drive(in_place(op, self.raw))

    async def amigrations(self) -> set[str] | None:
        return await self._drive(look(self._sql, self.raw))

    async def _drive(self, op: Op[T]) -> T:
        async with PlainAsyncCursor(self.raw, row_factory=tuple_row) as cursor:
            return await adrive(op, lambda statement: aexecute(cursor, statement))


def wrap(raw: object, sql: Queries) -> PsycopgConnection | AsyncPsycopgConnection | None:
    """A caller's connection, if it is one of psycopg's."""
    if isinstance(raw, psycopg.Connection):
        return PsycopgConnection(raw, sql)
    if isinstance(raw, psycopg.AsyncConnection):
        return AsyncPsycopgConnection(raw, sql)
    return None


def _whole(raw: psycopg.Connection[Any]) -> threading.RLock:
    """Threads that share a connection do one operation after the other, each of them whole."""
    with _new_lock:
        return _locks.setdefault(raw, threading.RLock())


def _awaited_whole(raw: psycopg.AsyncConnection[Any]) -> asyncio.Lock:
    """The same for tasks."""
    return _awaited_locks.setdefault(raw, asyncio.Lock())


def must_be_awaited(what: str) -> UnsupportedConnection:
    return UnsupportedConnection(
        f"{what} on a psycopg.AsyncConnection must be awaited: use the method whose name begins "
        "with a, such as aenqueue"
    )
