"""aiosqlite: a sqlite3 connection with a thread of its own.

The whole operation is handed to that thread, one hop instead of one for each statement, so no other
task can slip in between and a cancelled caller leaves nothing half done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, cast

import aiosqlite

from ..sql import Queries
from .base import Connection, Enclosing
from .sqlite3 import Sqlite3Connection

T = TypeVar("T")


class Raw(Protocol):
    """What is used of aiosqlite.Connection."""

    @property
    def _conn(self) -> sqlite3.Connection: ...

    @property
    def in_transaction(self) -> bool: ...

    def _execute(self, function: Callable[..., T], *args: object) -> Awaitable[T]: ...


class AiosqliteConnection(Enclosing):
    """A caller's aiosqlite connection."""

    raw: Raw

    def __init__(self, raw: Raw, sql: Queries, path: str) -> None:
        self.raw = raw
        self._inner = Sqlite3Connection(raw._conn, sql, path)

    @property
    def in_transaction(self) -> bool:
        return self.raw.in_transaction

    async def inside(self, act: Callable[[Connection], T]) -> T:
        return await self.raw._execute(act, self._inner)


def wrap(raw: object, sql: Queries, path: str) -> AiosqliteConnection | None:
    """A caller's connection, if it is one of aiosqlite's."""
    if isinstance(raw, aiosqlite.Connection):
        return AiosqliteConnection(cast(Raw, raw), sql, path)
    return None
