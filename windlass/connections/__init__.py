"""Callers' connections: recognise what `on=` was given and run operations on it.

Recognised by type without importing what is not installed. A connection executes statements and
knows what a transaction is on its driver; it never commits, rolls back or closes what it did not
begin.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from sqlite3 import Connection as StandardConnection
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from ..errors import UnsupportedConnection
from .sqlite3 import Sqlite3Connection

if TYPE_CHECKING:
    from ..operation import Op
    from ..sql import Queries

T = TypeVar("T")

SQLITE = "sqlite3.Connection, aiosqlite.Connection"
POSTGRES = "psycopg.Connection, psycopg.AsyncConnection"


class Connection(Protocol):
    """An open connection of the caller: blocking, awaiting, or both."""

    @property
    def in_transaction(self) -> bool: ...

    def migrations(self) -> set[str] | None: ...

    def amigrations(self) -> Awaitable[set[str] | None]: ...

    def run(self, op: Op[T]) -> T: ...

    def arun(self, op: Op[T]) -> Awaitable[T]: ...


def recognise_sqlite(raw: object, sql: Queries) -> Connection:
    """Wrap the caller's connection to a SQLite file, or say what is supported."""
    if isinstance(raw, StandardConnection):
        return Sqlite3Connection(raw, sql)
    aiosqlite = sys.modules.get("aiosqlite")
    if aiosqlite is not None and isinstance(raw, aiosqlite.Connection):
        from .aiosqlite import AiosqliteConnection, Raw

        return AiosqliteConnection(cast(Raw, raw), sql)
    raise _unsupported(raw, "SQLite", SQLITE)


def recognise_postgres(raw: object, sql: Queries) -> Connection:
    """Wrap the caller's connection to a PostgreSQL database, or say what is supported."""
    from .psycopg import wrap

    connection = wrap(raw, sql)
    if connection is None:
        raise _unsupported(raw, "PostgreSQL", POSTGRES)
    return connection


def _unsupported(raw: object, engine: str, supported: str) -> UnsupportedConnection:
    kind = type(raw)
    return UnsupportedConnection(
        f"on= cannot use {kind.__module__}.{kind.__qualname__} with an app on {engine}; "
        f"supported are: {supported}"
    )
