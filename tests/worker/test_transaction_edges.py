"""O1, E2: a handler's transaction where others begin, commit or cancel."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from tests.conformance.framework_caller import django_connection
from tests.conformance.kinds import Kind
from tests.conformance.place import Place
from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate, heard, outcomes
from tests.worker.test_transaction_on import (
    CELLS,
    _session_url,
    block,
    calling,
    each,
    write,
    written,
)
from towline import INJECTED, Backoff, ChainFailed, Context, InvalidState, Towline

pytestmark = pytest.mark.each_engine

AT_ONCE = Backoff(first=0)
COMMITS = [cell for cell in CELLS if cell[1].place is Place.AUTOCOMMIT]


@each(COMMITS)
def test_found_idle_in_autocommit_the_block_commits_or_keeps_nothing(
    app: Towline, database: Database, kind: Kind
) -> None:
    """O1: psycopg/sqlite3 in autocommit, asyncpg, Django outside atomic. The fence commits at once
    and each write of the handler too: a failing first attempt leaves its row behind."""

    @app.task(backoff=AT_ONCE)
    def work(ctx: Context = INJECTED) -> str:
        with calling(app, database, kind) as caller:
            with block(ctx, caller) as tx:
                write(caller, ctx.attempt)
                tx.complete("inside")
                if ctx.attempt == 1:
                    raise ValueError("half way")
            assert not caller.in_transaction
        return "ignored"

    with app.worker():
        job = work.enqueue()
        assert job.result(LIMIT) == "inside"
    assert written(database) == [2]
    assert outcomes(app, job.id) == ["failed", "completed"]


def test_a_session_that_has_begun_and_said_nothing_yet(app: Towline, database: Database) -> None:
    """O1: `with session.begin()` is the application's transaction, though the driver is idle."""
    engine = sqlalchemy.create_engine(_session_url(database, "pysqlite", "psycopg"))
    text = sqlalchemy.text("INSERT INTO mine (id) VALUES (:id)")

    @app.task(backoff=AT_ONCE)
    def work(ctx: Context = INJECTED) -> None:
        with Session(engine) as session, session.begin():
            with ctx.transaction(on=session) as tx:
                session.execute(text, {"id": 77 + ctx.attempt})
                tx.complete("inside")
            if ctx.attempt == 1:
                raise ValueError("after our block, inside of theirs")

    with app.worker():
        job = work.enqueue()
        assert job.result(LIMIT) == "inside"
    engine.dispose()
    assert written(database) == [2]
    assert outcomes(app, job.id) == ["failed", "completed"]


@pytest.mark.parametrize("used", [False, True])
def test_a_connection_of_sqlalchemy_that_commits_each_statement_is_refused(
    app: Towline, database: Database, used: bool
) -> None:
    """O1: also one that has been used, which SQLAlchemy takes for one in a transaction, and as
    often as it is tried."""
    url = _session_url(database, "pysqlite", "psycopg")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    text = sqlalchemy.text("SELECT 1")

    @app.task
    def work(ctx: Context = INJECTED) -> str:
        with engine.connect() as connection:
            if used:
                connection.execute(text)
            for _ in range(2):
                with (
                    pytest.raises(InvalidState, match="AUTOCOMMIT"),
                    ctx.transaction(on=connection) as tx,
                ):
                    tx.complete("inside")
            assert connection.in_transaction() is used
        return "after it"

    with app.worker():
        assert work.enqueue().result(LIMIT) == "after it"
    engine.dispose()


def test_djangos_atomic(app: Towline, database: Database) -> None:
    """O1: the block inside `atomic` commits with it, and is undone with it."""
    from django.db import transaction

    opened = django_connection()
    atomic: Any = transaction.atomic

    @app.task(backoff=AT_ONCE)
    def work(ctx: Context = INJECTED) -> None:
        connection = opened(database)
        try:
            with atomic(using=connection.alias):
                with ctx.transaction(on=connection) as tx:
                    with connection.cursor() as cursor:
                        cursor.execute("INSERT INTO mine (id) VALUES (%s)", [77 + ctx.attempt])
                    tx.complete("inside")
                if ctx.attempt == 1:
                    raise ValueError("after our block, inside of theirs")
        finally:
            connection.close()

    with app.worker():
        job = work.enqueue()
        assert job.result(LIMIT) == "inside"
    assert written(database) == [2]
    assert outcomes(app, job.id) == ["failed", "completed"]


def test_a_handler_may_go_on_after_it_has_completed_its_job(app: Towline) -> None:
    """O1: it is not told to stop, and its slot stays its own until it returns."""
    gate = Gate()
    told: list[bool] = []

    @app.task
    def work(ctx: Context = INJECTED) -> None:
        with ctx.transaction() as tx:
            tx.complete("done")
        told.append(ctx.stop.wait(3))  # longer than the worker looks whether it is still ours
        gate.enter()

    with app.worker(concurrency=1):
        job = work.enqueue()
        assert job.result(LIMIT) == "done"
        gate.wait_inside()
        gate.open()
    assert told == [False]


def test_a_handler_cancelled_while_it_waits_for_the_writer_leaves_it_free(
    make_app: Any, sqlite: Database
) -> None:
    """O6, Q2: the transaction that nobody enters is closed again."""
    app: Towline = make_app(lock_timeout=LIMIT)
    gate = Gate()
    cancelled = threading.Event()
    kept = []

    @app.task(timeout=0.5, max_attempts=1)
    async def waits(ctx: Context = INJECTED) -> None:
        await asyncio.to_thread(gate.enter)
        transaction = ctx.transaction()
        kept.append(transaction)  # it is not gone by itself
        try:
            async with transaction as tx:
                tx.complete()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @app.task
    def after() -> str:
        return "the writer is free"

    with app.worker(), closing(sqlite.connect(isolation_level=None)) as holder:
        job = waits.enqueue()
        gate.wait_inside()
        holder.execute("BEGIN IMMEDIATE")
        gate.open()
        heard(cancelled)
        holder.execute("ROLLBACK")
        until(lambda: not job.refresh().state.open)
        assert after.enqueue().result(LIMIT) == "the writer is free"


def test_a_commit_that_is_refused_leaves_the_writer_free(app: Towline, sqlite: Database) -> None:
    """O1, O5: SQLite keeps a transaction open that a deferred constraint does not let commit."""
    kept = []

    @app.task(max_attempts=1)
    def work(ctx: Context = INJECTED) -> None:
        raw = sqlite.connect(isolation_level=None, check_same_thread=False)
        kept.append(raw)
        raw.execute("PRAGMA foreign_keys = ON")
        raw.execute(
            "CREATE TABLE child (id INTEGER REFERENCES mine (id) DEFERRABLE INITIALLY DEFERRED)"
        )
        with ctx.transaction(on=raw) as tx:
            raw.execute("INSERT INTO child VALUES (404)")
            tx.complete()

    with app.worker():
        job = work.enqueue()
        with pytest.raises(ChainFailed, match="FOREIGN KEY"):
            job.result(LIMIT)
    (raw,) = kept
    assert not raw.in_transaction
    raw.close()
