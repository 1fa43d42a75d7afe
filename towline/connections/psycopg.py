"""psycopg 3, blocking and awaiting, as the caller configured it.

Row factories, cursor classes, loaders and dumpers of the caller neither disturb us nor are changed.
Nothing is prepared on the server: a pooler may stand between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import adapt, postgres
from psycopg.pq import PipelineStatus
from psycopg.rows import tuple_row

from ..operation import AwaitedExecute, Execute, Row, Statement
from .base import AwaitingDriver, BlockingDriver
from .postgres import LibpqConnection, answer, awaited_turn, parameters, turn

if TYPE_CHECKING:
    from psycopg.abc import Buffer

COPY_FROM = 200  # rows from which COPY is quicker than one JSON parameter


class Text(adapt.Loader):
    """Text as the server has it, which is UTF-8."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode()


@cache
def plain_adapters(encoding: str) -> adapt.AdaptersMap:
    """Types as psycopg ships them, whatever the application has registered."""
    adapters = adapt.AdaptersMap(types=psycopg.postgres.types)
    postgres.register_default_adapters(adapters)
    if encoding == "ascii":  # psycopg gives bytes then: SQL_ASCII leaves open what they mean
        adapters.register_loader("text", Text)
    return adapters


class PlainCursor(psycopg.Cursor[Row]):
    """A cursor that the caller's settings do not reach."""

    @property
    def adapters(self) -> adapt.AdaptersMap:
        return plain_adapters(self.connection.info.encoding)


class PlainAsyncCursor(psycopg.AsyncCursor[Row]):
    """The same for awaiting connections."""

    @property
    def adapters(self) -> adapt.AdaptersMap:
        return plain_adapters(self.connection.info.encoding)


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


class PsycopgConnection(LibpqConnection, BlockingDriver):
    """A caller's psycopg.Connection."""

    raw: psycopg.Connection[Any]

    @contextmanager
    def cursor(self) -> Iterator[Execute]:
        with turn(self.raw):
            if in_pipeline(self.raw):  # what was sent before is answered, so we know where we are
                with self.raw.pipeline():
                    pass
            with PlainCursor(self.raw, row_factory=tuple_row) as cursor:
                yield lambda statement: execute(cursor, statement, False)


class AsyncPsycopgConnection(LibpqConnection, AwaitingDriver):
    """A caller's psycopg.AsyncConnection."""

    raw: psycopg.AsyncConnection[Any]

    @asynccontextmanager
    async def cursor(self) -> AsyncIterator[AwaitedExecute]:
        async with awaited_turn(self.raw):
            if in_pipeline(self.raw):
                async with self.raw.pipeline():
                    pass
            async with PlainAsyncCursor(self.raw, row_factory=tuple_row) as cursor:
                yield lambda statement: aexecute(cursor, statement)


KINDS = (
    (psycopg.Connection, PsycopgConnection),
    (psycopg.AsyncConnection, AsyncPsycopgConnection),
)
