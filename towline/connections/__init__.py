"""Connections: how each driver runs a statement, ours and callers'; and what `on=` was given.

A caller's connection is recognised by its type, without importing what is not installed. One of a
framework is opened up to the driver's underneath. What an operation does on it is in `base`.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UnsupportedConnection
from .base import Connection

if TYPE_CHECKING:
    from ..sql import Queries

__all__ = ["Connection", "recognise_postgres", "recognise_sqlite"]


class Kind(NamedTuple):
    """The drivers of an engine, by the names of their modules and ours, and as people are told."""

    engine: str
    drivers: tuple[str, ...]
    supported: str


SQLITE = Kind("SQLite", ("sqlite3", "aiosqlite"), "sqlite3.Connection, aiosqlite.Connection")
POSTGRES = Kind(
    "PostgreSQL",
    ("psycopg", "asyncpg", "psycopg2"),
    "psycopg.Connection, psycopg.AsyncConnection, asyncpg.Connection, "
    "psycopg2.extensions.connection",
)
FRAMEWORKS = {"sqlalchemy": "sqlalchemy", "django.db": "django"}  # their module, ours


def recognise_sqlite(raw: object, sql: Queries, path: str) -> Connection:
    """Wrap the caller's connection to the SQLite file at `path`, or say what is supported."""
    return _recognise(raw, SQLITE, sql, path)


def recognise_postgres(raw: object, sql: Queries, database: str | None = None) -> Connection:
    """Wrap the caller's connection to a PostgreSQL database, or say what is supported.

    One to another database than the named one is refused.
    """
    return _recognise(raw, POSTGRES, sql, database)


def _recognise(raw: object, kind: Kind, sql: Queries, database: str | None) -> Connection:
    found: Connection | None
    for name in kind.drivers:
        if name in sys.modules:
            found = _module(name).wrap(raw, sql, database)
            if found is not None:
                return found
    for name, ours in FRAMEWORKS.items():
        if name in sys.modules:
            found = _module(ours).wrap(raw, lambda inner: _recognise(inner, kind, sql, database))
            if found is not None:
                return found
    given = type(raw)
    raise UnsupportedConnection(
        f"on= cannot use {given.__module__}.{given.__qualname__} with an app on {kind.engine}; "
        f"supported are: {kind.supported}; SQLAlchemy's Connection, Session, AsyncConnection and "
        "AsyncSession, and Django's connection, on one of these"
    )


@cache
def _module(name: str) -> Any:
    return import_module(f".{name}", __name__)
