"""A throw-away database for one test: a SQLite file, or a database on a PostgreSQL server.

Both hold our tables and one of the application's own, `mine`, and both are looked at past the
library, in plain SQL with `?` for parameters.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import psycopg

from tests import servers
from towline import Towline
from towline.sql import TABLES

SQLITE = "sqlite"

# What a statement has touched in this transaction: pages and rows, of tables and of indexes.
TOUCHED = """
SELECT sum(pg_stat_get_xact_blocks_fetched(oid)
         + pg_stat_get_xact_tuples_returned(oid)
         + pg_stat_get_xact_tuples_fetched(oid))
  FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i')
"""
SIZE = """
SELECT sum(pg_total_relation_size(oid))
  FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
"""


class Database(Protocol):
    """A database with our tables and `mine (id)`, dropped after the test."""

    name: str
    """As in a test's id: "sqlite", "postgres 18"."""

    engine: str
    """sqlite or postgres."""

    url: str

    slack: float
    """How many times as much the same work may cost in a fuller table, where trees are higher."""

    def connect(self, **settings: Any) -> Any:
        """A blocking connection of the engine's usual driver, which begins by itself."""
        ...

    def rows(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        """What plain SQL finds, past the library; a write is committed."""
        ...

    def cost(self, connection: Any, work: Callable[[], object]) -> int:
        """What work inside a transaction of this connection costs: a number, not a time, so the
        same on any host. Only compare it with another of the same engine."""
        ...

    def free_ids(self) -> None:
        """Let the next job have the id after the highest that is stored, though that id was given
        to a job that was rolled back. SQLite does so by itself."""
        ...

    def size(self) -> int:
        """Bytes that the tables and their indexes take."""
        ...

    def tidy(self) -> None:
        """Do now what PostgreSQL does by itself from time to time: make the room of dead rows free,
        learn how many there are of what. SQLite needs neither."""
        ...


def names() -> list[str]:
    """Every database the suites run on, the quickest first."""
    return [SQLITE, *servers.servers()]


def newest() -> str:
    """The one on which every way of calling us is tried, not only the SQL."""
    return names()[-1]


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Database]:
    """A fresh database of that name; a file lies in the folder."""
    if name == SQLITE:
        yield SqliteDatabase(folder / "app.db")
        return
    server = servers.server(name)
    url = server.create(server.template("towline", _furnish_postgres))
    database = PostgresDatabase(name, url)
    try:
        yield database
    finally:
        database.close()
        server.drop(url)


def connect(url: str) -> Any:
    """The usual blocking connection to any of them; for a child process, which has the URL only."""
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"))
    return psycopg.connect(url)


class SqliteDatabase:
    """A file, copied from one that was furnished once."""

    name = engine = SQLITE
    slack = 1.05

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        path.write_bytes(_furnished_file())

    def connect(self, **settings: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(self.path, **settings)
        return connection

    def rows(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            return connection.execute(text, params).fetchall()

    def cost(self, connection: sqlite3.Connection, work: Callable[[], object]) -> int:
        """Steps of SQLite's machine."""
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        connection.set_progress_handler(count, 1)
        try:
            work()
        finally:
            connection.set_progress_handler(None, 1)
        return steps

    def free_ids(self) -> None:
        pass

    def size(self) -> int:
        return int(self.rows("PRAGMA page_count")[0][0] * self.rows("PRAGMA page_size")[0][0])

    def tidy(self) -> None:
        pass


class PostgresDatabase:
    """A database on a server, copied from a template there."""

    engine = "postgres"
    slack = 2.5

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url

    @functools.cached_property
    def _eye(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url, autocommit=True)

    def connect(self, **settings: Any) -> psycopg.Connection[Any]:
        connection: psycopg.Connection[Any] = psycopg.connect(self.url, **settings)
        return connection

    def rows(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        if params:
            text = text.replace("%", "%%").replace("?", "%s")
        cursor = self._eye.execute(text.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    def cost(self, connection: psycopg.Connection[Any], work: Callable[[], object]) -> int:
        """Pages and rows touched. The server forgets them between transactions."""

        def touched() -> int:
            row = psycopg.Connection.cursor(connection).execute(TOUCHED).fetchone()
            assert row is not None
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
            return int(row[0])

        before = touched()
        work()
        return touched() - before

    def free_ids(self) -> None:
        self.rows(
            "SELECT setval('towline_job_ids', coalesce(max(id), 0) + 1, false) FROM towline_job"
        )

    def size(self) -> int:
        return int(self.rows(SIZE)[0][0])

    def tidy(self) -> None:
        self.rows("VACUUM ANALYZE " + ", ".join(f"towline_{table}" for table in TABLES))

    def close(self) -> None:
        if "_eye" in vars(self):
            self._eye.close()


@functools.cache
def _furnished_file() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "app.db"
        app = Towline(f"sqlite:///{path}")
        app.migrate()
        app.close()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY)")
        return path.read_bytes()


def _furnish_postgres(url: str) -> None:
    app = Towline(url)
    app.migrate()
    app.close()
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE mine (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY)"
        )
