"""What is said of connections that cannot be used, or not in this way."""

from __future__ import annotations

from ..errors import UnsupportedConnection

FRAMEWORKS = (
    "SQLAlchemy's Connection, Session, AsyncConnection and AsyncSession, "
    "and Django's connection, on one of these"
)
SUPPORTED = {
    "SQLite": f"sqlite3.Connection, aiosqlite.Connection; {FRAMEWORKS}",
    "PostgreSQL": (
        "psycopg.Connection, psycopg.AsyncConnection, asyncpg.Connection, "
        f"psycopg2.extensions.connection; {FRAMEWORKS}"
    ),
}


def unsupported(raw: object, engine: str) -> UnsupportedConnection:
    kind = type(raw)
    return UnsupportedConnection(
        f"on= cannot use {kind.__module__}.{kind.__qualname__} with an app on {engine}; "
        f"supported are: {SUPPORTED[engine]}"
    )


def of_another_database(theirs: str, ours: str) -> UnsupportedConnection:
    return UnsupportedConnection(
        f"on= is a connection to database {theirs}, and this app is on {ours}: no worker would see "
        "the job. If they are one database under two names of a pooler, say pooler=True"
    )


def must_be_awaited(what: str, raw: object) -> UnsupportedConnection:
    kind = type(raw)
    return UnsupportedConnection(
        f"{what} on {kind.__module__.partition('.')[0]}.{kind.__qualname__} must be awaited: use "
        "the method whose name begins with a, such as `await task.aenqueue(…)`"
    )
