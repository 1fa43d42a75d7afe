"""asyncpg, as the caller configured it.

It is in autocommit unless a transaction was begun. Record classes and codecs of the caller
neither disturb us nor are changed: our statements are run as asyncpg runs its own, without them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from ..operation import AwaitedExecute
from ..sql import Queries, Row, Statement
from .base import AwaitingDriver
from .postgres import PostgresConnection, answer, awaited_turn, parameters


class AsyncpgConnection(PostgresConnection, AwaitingDriver):
    """A caller's asyncpg connection, its own or one of a pool."""

    @property
    def database(self) -> str | None:
        name = getattr(getattr(self.raw, "_params", None), "database", None)
        return name if isinstance(name, str) else None

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.is_in_transaction())

    @property
    def autocommits(self) -> bool:
        return True

    @asynccontextmanager
    async def cursor(self) -> AsyncIterator[AwaitedExecute]:
        async with awaited_turn(self.raw):
            yield self._execute

    async def _execute(self, statement: Statement) -> list[Row]:
        # As `fetch` does it; a codec that makes text of int8 would be heard here otherwise.
        rows: list[Any] = await self.raw._execute(
            statement.query.dollar, tuple(parameters(statement)), 0, None,
            record_class=asyncpg.Record, ignore_custom_codec=True,
        )  # fmt: skip
        return answer(statement, [tuple(row) for row in rows])


def wrap(raw: object, sql: Queries, database: str | None) -> AsyncpgConnection | None:
    """A caller's connection, if it is one of asyncpg's."""
    if isinstance(raw, asyncpg.pool.PoolConnectionProxy):
        raw = raw._con  # who shares the connection shares the lock on it
    return AsyncpgConnection(raw, sql, database) if isinstance(raw, asyncpg.Connection) else None
