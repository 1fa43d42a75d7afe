"""The table of connection kinds. `play` runs a script, itself an operation, on each of them.

A case is an ordinary function; its script runs blocking or awaiting, on our connection or on a
caller's in every state of the table in design/004. One `play` is one transaction, committed at its
end.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import pytest

from windlass import Windlass
from windlass.operation import Op, Steps, compose
from windlass.store import Store

T = TypeVar("T")


def hostile(path: Path) -> sqlite3.Connection:
    """A connection whose factories and converters change all they touch."""
    sqlite3.register_converter("INTEGER", lambda value: f"converted {value!r}")
    sqlite3.register_converter("TEXT", lambda value: f"converted {value!r}")
    connection = sqlite3.connect(path, detect_types=sqlite3.PARSE_DECLTYPES)
    connection.row_factory = lambda cursor, row: {"hostile": row}
    connection.text_factory = bytes
    return connection


def busy(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Inside a transaction that the caller has begun and written in."""
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO mine DEFAULT VALUES")
    return connection


def deferred(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Inside a deferred transaction that has not touched the database yet."""
    connection.execute("BEGIN")
    return connection


OPEN: dict[str, Callable[[Path], sqlite3.Connection]] = {
    "sqlite3 default, idle": lambda path: sqlite3.connect(path),
    "sqlite3 IMMEDIATE, idle": lambda path: sqlite3.connect(path, isolation_level="IMMEDIATE"),
    "sqlite3 autocommit, idle": lambda path: sqlite3.connect(path, isolation_level=None),
    "sqlite3, writing": lambda path: busy(sqlite3.connect(path)),
    "sqlite3 autocommit, deferred": lambda path: deferred(
        sqlite3.connect(path, isolation_level=None)
    ),
    "sqlite3 hostile, idle": hostile,
    "sqlite3 hostile, writing": lambda path: busy(hostile(path)),
}
if sys.version_info >= (3, 12):
    OPEN["sqlite3 autocommit=True, idle"] = lambda path: sqlite3.connect(path, autocommit=True)
    OPEN["sqlite3 autocommit=False"] = lambda path: sqlite3.connect(path, autocommit=False)

KINDS = (
    "ours, blocking",
    "ours, awaiting",
    *OPEN,
    "aiosqlite, idle",
    "aiosqlite, writing",
    "aiosqlite autocommit, idle",
)


class Play:
    """Run a script in one transaction of the kind under test, and commit."""

    def __init__(self, kind: str, app: Windlass, database: Path) -> None:
        self.kind = kind
        self._app = app
        self._database = database

    def __call__(self, script: Callable[[], Steps[T]]) -> T:
        op = compose("script", script)
        if self.kind == "ours, blocking":
            return self._app.run(op)
        if self.kind == "ours, awaiting":
            return asyncio.run(self._app.arun(op))
        if self.kind.startswith("aiosqlite"):
            return asyncio.run(self._awaiting(op))
        return self._blocking(op)

    def _blocking(self, op: Op[T]) -> T:
        connection = OPEN[self.kind](self._database)
        try:
            result = self._app.run(op, on=connection)
            connection.commit()
        finally:
            connection.close()
        return result

    async def _awaiting(self, op: Op[T]) -> T:
        level: Any = None if "autocommit" in self.kind else ""
        async with aiosqlite.connect(self._database, isolation_level=level) as connection:
            if "writing" in self.kind:
                await connection.execute("BEGIN IMMEDIATE")
                await connection.execute("INSERT INTO mine DEFAULT VALUES")
            result = await self._app.arun(op, on=connection)
            await connection.commit()
        return result


@pytest.fixture(params=KINDS)
def play(request: pytest.FixtureRequest, app: Windlass, database: Path) -> Iterator[Play]:
    """Run scripts on every kind of connection."""
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY)")
    connection.commit()
    connection.close()
    yield Play(request.param, app, database)
    sqlite3.converters.pop("INTEGER", None)
    sqlite3.converters.pop("TEXT", None)


@pytest.fixture
def store(app: Windlass) -> Store:
    return app.store
