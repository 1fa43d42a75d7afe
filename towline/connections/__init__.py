"""Connections: how each driver runs a statement, ours and callers'; and what `on=` was given.

A caller's connection is recognised by its type, without importing what is not installed: each
driver's file lists in KINDS which class of ours wraps which of its. One of a framework is opened up
to the driver's underneath. What an operation does on it is in `base`.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import UnsupportedConnection
from .base import Connection

__all__ = ["POSTGRES", "SQLITE", "Connection", "recognise"]


class Drivers(NamedTuple):
    """The drivers of an engine, by the names of their modules and ours, and as people are told."""

    engine: str
    names: tuple[str, ...]
    supported: str


SQLITE = Drivers("SQLite", ("sqlite3", "aiosqlite"), "sqlite3.Connection, aiosqlite.Connection")
POSTGRES = Drivers(
    "PostgreSQL",
    ("psycopg", "asyncpg", "psycopg2"),
    "psycopg.Connection, psycopg.AsyncConnection, asyncpg.Connection, "
    "psycopg2.extensions.connection",
)
FRAMEWORKS = {  # their module, ours
    "sqlalchemy": "sqlalchemy",
    "sqlalchemy.ext.asyncio": "sqlalchemy_asyncio",
    "django.db": "django",
}


def recognise(raw: object, drivers: Drivers, *app: Any) -> Connection:
    """Wrap the caller's connection, or say what is supported.

    `app` is what a driver needs to know of the app: its statements and file on SQLite, the name of
    its database on PostgreSQL. A connection to another one is refused.
    """
    found: Connection | None
    for name in drivers.names:
        if name in sys.modules and (found := _wrap(name, raw, *app)) is not None:
            return found
    for name, ours in FRAMEWORKS.items():
        if name in sys.modules:
            found = _wrap(ours, raw, lambda inner: recognise(inner, drivers, *app))
            if found is not None:
                return found
    given = type(raw)
    raise UnsupportedConnection(
        f"on= cannot use {given.__module__}.{given.__qualname__} with an app on {drivers.engine}; "
        f"supported are: {drivers.supported}; SQLAlchemy's Connection, Session, AsyncConnection "
        "and AsyncSession, and Django's connection, on one of these"
    )


def _wrap(name: str, raw: object, *given: Any) -> Connection | None:
    for theirs, ours in _kinds(name):
        if isinstance(raw, theirs):
            wrapped: Connection = ours(raw, *given)
            return wrapped
    return None


@cache
def _kinds(name: str) -> Any:
    return import_module(f".{name}", __name__).KINDS
