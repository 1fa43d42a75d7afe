"""aiosqlite: a sqlite3 connection with a thread of its own.

The whole operation is handed to that thread, one hop instead of one for each statement, so no other
task can slip in between and a cancelled caller leaves nothing half done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar, cast

from ..errors import UnsupportedConnection
from ..operation import Op
from ..sql import Queries
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

    def __init__(self, raw: Raw, sql: Queries) -> None:
        self._raw = raw
        self._inner = Sqlite3Connection(raw._conn, sql)

    @property
    def in_transaction(self) -> bool:
        return self._raw.in_transaction

    def run(self, op: Op[T]) -> T:
        raise UnsupportedConnection(
            f"{op.name} on an aiosqlite connection must be awaited: use the method whose name "
            "begins with a, such as aenqueue"
        )

    def migrations(self) -> set[str] | None:
        raise UnsupportedConnection(
            "an aiosqlite connection must be awaited: use the method whose name begins with a, "
            "such as aenqueue"
        )

    async def arun(self, op: Op[T]) -> T:
        return cast(T, await self._raw._execute(self._inner.run, op))

    async def amigrations(self) -> set[str] | None:
        return await self._raw._execute(self._inner.migrations)
