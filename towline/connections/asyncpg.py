"""asyncpg, as the caller configured it.

It is in autocommit unless a transaction was begun. Record classes and codecs of the caller
neither disturb us nor are changed: our statements are run as asyncpg runs its own, without them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from ..operation import AwaitedExecute, Row, Statement
from .base import AwaitingDriver
from .postgres import PostgresConnection, answer, awaited_turn, parameters


class AsyncpgConnection(PostgresConnection, AwaitingDriver):
    """A caller's asyncpg connection, its own or one of a pool."""

    def __init__(self, raw: Any, database: str | None = None) -> None:
        if isinstance(raw, asyncpg.pool.PoolConnectionProxy):
            raw = raw._con  # who shares the connection shares the lock on it
        super().__init__(raw, database)

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


KINDS = (((asyncpg.Connection, asyncpg.pool.PoolConnectionProxy), AsyncpgConnection),)
