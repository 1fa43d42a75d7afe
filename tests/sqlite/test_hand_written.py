"""Finding A8e: values that somebody writes by hand, in SQLite, which would take any.

One row that cannot be read would stop every worker that comes to it. PostgreSQL checks the types of
its columns; here the tables do.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import database as databases
from towline import Towline

JOB = ("priority", "max_attempts", "timeout", "blockers", "policy")
LIVE = (
    "state", "priority", "job_id", "attempt", "used", "lost", "open_blockers", "run_at",
    "claimed_at", "started_at", "worker",
)  # fmt: skip
BAD: dict[str, object] = {"text": "soon", "a fraction": 1.5, "bytes": b"1"}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The application's own, on a database with one job."""
    with databases.opened(databases.SQLITE, tmp_path) as database:
        app = Towline(database.url)
        app.task(name="a")(lambda: None).enqueue()
        app.close()
        with closing(database.connect(isolation_level=None)) as connection:
            yield connection


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("table", "column"), [*(("job", name) for name in JOB), *(("live", name) for name in LIVE)]
)
def test_A8e_what_is_no_integer_is_refused(
    connection: sqlite3.Connection, table: str, column: str, bad: str
) -> None:
    before = connection.execute(f"SELECT * FROM towline_{table}").fetchall()
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed"):
        connection.execute(f"UPDATE towline_{table} SET {column} = ?", (BAD[bad],))
    assert connection.execute(f"SELECT * FROM towline_{table}").fetchall() == before


@pytest.mark.parametrize("column", ["timeout", "claimed_at", "started_at", "worker"])
def test_A8e_what_may_be_missing_may_still_be_missing(
    connection: sqlite3.Connection, column: str
) -> None:
    table = "job" if column == "timeout" else "live"
    connection.execute(f"UPDATE towline_{table} SET {column} = NULL")
    connection.execute(f"UPDATE towline_{table} SET {column} = '7'")  # as a number is what it is
    assert connection.execute(f"SELECT {column} FROM towline_{table}").fetchall() == [(7,)]
