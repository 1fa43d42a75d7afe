"""aiosqlite: a sqlite3 connection with a thread of its own.

The whole operation is handed to that thread, one hop instead of one for each statement, so no other
task can slip in between and a cancelled caller leaves nothing half done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, cast

import aiosqlite

from ..operation import Op
from ..sql import Queries
from .refusal import must_be_awaited
from .sqlite3 import Sqlite3Connection

T = TypeVar("T")


class Raw(Protocol):
    """What is used of aiosqlite.Connection."""

    @property
    def _conn(self) -> sqlite3.Connection: ...

    @property
    def in_transaction(self) -> bool: ...

    def _execute(self, function: Callable[..., T], *args: object) -> Awaitable[T]: ...


class AiosqliteConnection:
    """A caller's aiosqlite connection; only the awaiting face can use it."""

    def __init__(self, raw: Raw, sql: Queries, path: str) -> None:
        self._raw = raw
        self._inner = Sqlite3Connection(raw._conn, sql, path)

    @property
    def in_transaction(self) -> bool:
        return self._raw.in_transaction

    def run(self, op: Op[T]) -> T:
        raise must_be_awaited(op.name, self._raw)

    def migrations(self) -> set[str] | None:
        raise must_be_awaited("what is done", self._raw)

    async def arun(self, op: Op[T]) -> T:
        return cast(T, await self._raw._execute(self._inner.run, op))

    def begin(self) -> bool:
        raise must_be_awaited("a transaction", self._raw)

    async def abegin(self) -> bool:
        return await self._raw._execute(self._inner.begin)

    def end(self, *, commit: bool) -> None:
        raise must_be_awaited("a transaction", self._raw)

    async def aend(self, *, commit: bool) -> None:
        await self._raw._execute(lambda: self._inner.end(commit=commit))

    async def amigrations(self) -> set[str] | None:
        return await self._raw._execute(self._inner.migrations)


def wrap(raw: object, sql: Queries, path: str) -> AiosqliteConnection | None:
    """A caller's connection, if it is one of aiosqlite's."""
    if isinstance(raw, aiosqlite.Connection):
        return AiosqliteConnection(cast(Raw, raw), sql, path)
    return None
