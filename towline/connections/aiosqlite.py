"""aiosqlite: a sqlite3 connection with a thread of its own.

The whole operation is handed to that thread, one hop instead of one for each statement, so no other
task can slip in between and a cancelled caller leaves nothing half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import aiosqlite

from ..sql import Queries
from .base import Connection, Enclosing
from .sqlite3 import Sqlite3Connection

T = TypeVar("T")


class AiosqliteConnection(Enclosing):
    """A caller's aiosqlite connection."""

    def __init__(self, raw: Any, sql: Queries, path: str) -> None:
        self.raw = raw
        self._inner = Sqlite3Connection(raw._conn, sql, path)

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.in_transaction)

    async def inside(self, act: Callable[[Connection], T]) -> T:
        answer: T = await self.raw._execute(act, self._inner)
        return answer

    async def abegin(self) -> bool:
        began: list[bool] = []
        try:
            await self.inside(lambda inner: began.append(inner.begin()))
        except asyncio.CancelledError:  # the thread goes on; nobody would end what it opens
            await self.inside(lambda inner: inner.end(commit=False) if any(began) else None)
            raise
        return began[0]


KINDS = ((aiosqlite.Connection, AiosqliteConnection),)
