"""Callers' connections: recognise what `on=` was given and run operations on it.

Recognised by type without importing what is not installed. A connection executes statements and
knows what a transaction is on its driver; it never commits, rolls back or closes what it did not
begin. A framework's connection is opened up to the driver's underneath.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from sqlite3 import Connection as StandardConnection
from typing import TYPE_CHECKING, Protocol, TypeVar

from .refusal import unsupported
from .sqlite3 import Sqlite3Connection

if TYPE_CHECKING:
    from ..operation import Op
    from ..sql import Queries

T = TypeVar("T")


class Connection(Protocol):
    """An open connection of the caller: blocking, awaiting, or both."""

    @property
    def in_transaction(self) -> bool: ...

    def migrations(self) -> set[str] | None: ...

    def amigrations(self) -> Awaitable[set[str] | None]: ...

    def run(self, op: Op[T]) -> T: ...

    def arun(self, op: Op[T]) -> Awaitable[T]: ...

    def begin(self) -> bool:
        """Open a transaction, unless the caller has one; True when it is ours to end."""
        ...

    def abegin(self) -> Awaitable[bool]: ...

    def end(self, *, commit: bool) -> None:
        """End the transaction that `begin` opened."""
        ...

    def aend(self, *, commit: bool) -> Awaitable[None]: ...


def recognise_sqlite(raw: object, sql: Queries, path: str) -> Connection:
    """Wrap the caller's connection to the SQLite file at `path`, or say what is supported."""
    if isinstance(raw, StandardConnection):
        return Sqlite3Connection(raw, sql, path)
    found: Connection | None = None
    if "aiosqlite" in sys.modules:
        from . import aiosqlite

        found = aiosqlite.wrap(raw, sql, path)
    if found is None:
        found = _opened_up(raw, lambda inner: recognise_sqlite(inner, sql, path))
    if found is None:
        raise unsupported(raw, "SQLite")
    return found


def recognise_postgres(raw: object, sql: Queries, database: str | None = None) -> Connection:
    """Wrap the caller's connection to a PostgreSQL database, or say what is supported.

    One to another database than the named one is refused.
    """
    from . import psycopg
    from .postgres import Placed

    found: Connection | None = psycopg.wrap(raw, sql)
    if found is None and "asyncpg" in sys.modules:
        from . import asyncpg

        found = asyncpg.wrap(raw, sql)
    if found is None and "psycopg2" in sys.modules:
        from . import psycopg2

        found = psycopg2.wrap(raw, sql)
    if found is None:
        found = _opened_up(raw, lambda inner: recognise_postgres(inner, sql, database))
    if found is None:
        raise unsupported(raw, "PostgreSQL")
    if database is not None and isinstance(found, Placed):
        found.check_database(database)
    return found


def _opened_up(raw: object, recognise: Callable[[object], Connection]) -> Connection | None:
    """A framework's connection, to be used through the driver's."""
    found: Connection | None = None
    if "sqlalchemy" in sys.modules:
        from . import sqlalchemy

        found = sqlalchemy.wrap(raw, recognise)
    if found is None and "django.db" in sys.modules:
        from . import django

        found = django.wrap(raw, recognise)
    return found
