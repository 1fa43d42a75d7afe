"""`drain(app, on=connection)`: inside the transaction of a test, whatever its connection is."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import aiosqlite
import psycopg
import pytest

from tests import servers
from towline import INJECTED, Context, Towline
from towline.errors import UnsupportedConnection
from towline.sql import split_statements
from towline.testing import adrain, drain


@pytest.fixture(params=["sqlite", "postgres"])
def connection(request: pytest.FixtureRequest) -> Iterator[Any]:
    """In a transaction that is rolled back; on SQLite in memory."""
    if request.param == "sqlite":
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("ROLLBACK")
    else:
        with servers.server(servers.servers()[-1]).database() as url:
            with psycopg.connect(url) as connection:
                yield connection
                connection.rollback()


@pytest.fixture
def app(connection: Any) -> Iterator[Towline]:
    """Its tables are in the open transaction: only there can it work at all."""
    if isinstance(connection, sqlite3.Connection):
        url = "sqlite:////nowhere/at-all.db"
    else:
        url = f"postgresql://localhost:1/{connection.info.dbname}"
    app = Towline(url, migrate=False)
    for statement in [*split_statements(app.ddl()), "CREATE TABLE mine (id integer PRIMARY KEY)"]:
        connection.execute(statement)
    yield app
    app.close()


def rows(connection: Any) -> list[int]:
    return [id for (id,) in connection.execute("SELECT id FROM mine ORDER BY id").fetchall()]


def write(connection: Any, id: int) -> None:
    connection.execute(f"INSERT INTO mine (id) VALUES ({id})")


def test_I5_everything_happens_on_the_connection(app: Towline, connection: Any) -> None:
    @app.task
    def count_down(n: int) -> int:
        write(connection, n)
        if n:
            count_down.enqueue(n - 1)  # names no connection: it is the drain's
        return n

    job = count_down.using(on=connection).enqueue(2)
    assert drain(app, on=connection) == 3
    assert rows(connection) == [0, 1, 2]
    assert job.refresh(on=connection).output == 2
    assert app.workers(on=connection) == []


def test_I5_a_handler_that_breaks_the_transaction_loses_its_own_writes(
    app: Towline, connection: Any
) -> None:
    @app.task(max_attempts=1)
    def twice(n: int) -> None:
        write(connection, n)
        write(connection, n)

    @app.task(max_attempts=1)
    def once_and_fail(n: int) -> None:
        write(connection, n)
        raise KeyError(n)

    broken = twice.using(on=connection).enqueue(1)
    failed = once_and_fail.using(on=connection).enqueue(2)
    drain(app, on=connection, raising=False)
    assert [str(job.refresh(on=connection).state) for job in (broken, failed)] == ["failed"] * 2
    # SQLite undoes the one statement that failed, PostgreSQL breaks the whole transaction.
    kept = [1] if isinstance(connection, sqlite3.Connection) else []
    assert rows(connection) == [*kept, 2]


# On SQLite nothing is broken by a statement that fails.
@pytest.mark.parametrize("connection", ["postgres"], indirect=True)
def test_I5_what_a_handler_hides_is_found(app: Towline, connection: Any) -> None:
    @app.task(max_attempts=1)
    def hide() -> None:
        try:
            connection.execute("SELECT no_such_column")
        except psycopg.Error:
            pass

    job = hide.using(on=connection).enqueue()
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        drain(app, on=connection)
    assert job.refresh(on=connection).state == "failed"


def test_I5_a_transaction_of_the_handler_is_the_drain_s(app: Towline, connection: Any) -> None:
    @app.task
    def complete(ctx: Context = INJECTED) -> None:
        with ctx.transaction() as tx:
            write(tx.connection, 5)
            tx.complete(None)

    job = complete.using(on=connection).enqueue()
    assert drain(app, on=connection) == 1
    assert job.refresh(on=connection).state == "completed"
    assert rows(connection) == [5]


def test_I5_awaiting(app: Towline, connection: Any) -> None:
    @app.task
    async def note(n: int) -> int:
        await asyncio.sleep(0)
        write(connection, n)
        return n

    async def go() -> int:
        note.using(on=connection).enqueue(1)
        return await adrain(app, on=connection)

    note.using(on=connection).enqueue(0)
    assert drain(app, on=connection) == 1
    assert asyncio.run(go()) == 1
    assert rows(connection) == [0, 1]


def test_I5_a_connection_to_await_is_refused() -> None:
    async def go() -> None:
        async with aiosqlite.connect(":memory:") as connection:
            await adrain(Towline("sqlite:////nowhere/at-all.db"), on=connection)

    with pytest.raises(UnsupportedConnection, match="blocks"):
        asyncio.run(go())
