"""`ctx.transaction(on=…)`: the job ends in the application's own transaction, on all its kinds of
connection and session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests import database as databases
from tests.conformance.caller import Caller
from tests.conformance.kinds import Kind, kinds
from tests.database import Database
from tests.speed import drawn
from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import INJECTED, Backoff, Context, InvalidState, State, Towline
from towline.errors import LeaseLost, WriterBusy, WrongIsolation

pytestmark = pytest.mark.each_engine

AT_ONCE = Backoff(first=0)
CELLS = [
    (name, kind)
    for name in (databases.SQLITE, databases.newest())
    for kind in kinds(name)
    if kind.played and not kind.ours and "hostile" not in kind.name
    if name == databases.SQLITE or drawn(kind.name, 2)
]
IDLE = [cell for cell in CELLS if cell[1].idle]
OPEN = [cell for cell in CELLS if cell[1].in_transaction]


def each(cells: list[tuple[str, Kind]]) -> pytest.MarkDecorator:
    names = [f"{name}: {kind.name}" for name, kind in cells]
    return pytest.mark.parametrize(("database", "kind"), cells, indirect=["database"], ids=names)


@contextmanager
def calling(app: Towline, database: Database, kind: Kind) -> Iterator[Caller]:
    """An application's connection, opened and closed in the thread that uses it."""
    caller = kind.caller(kind, app, database)
    try:
        yield caller
    finally:
        caller.close()


@contextmanager
def block(ctx: Context, caller: Caller) -> Iterator[Any]:
    """`with ctx.transaction(on=…)`, or `async with` where the connection is awaited."""
    transaction = ctx.transaction(on=caller.raw)
    if not caller.kind.awaits:
        with transaction as tx:
            yield tx
        return
    tx = caller.wait(transaction.__aenter__())
    try:
        yield tx
    except BaseException as error:
        caller.wait(transaction.__aexit__(type(error), error, error.__traceback__))
        raise
    caller.wait(transaction.__aexit__(None, None, None))


def written(database: Database) -> list[int]:
    """What handlers wrote, by their attempt."""
    return [id - 77 for (id,) in database.rows("SELECT id FROM mine WHERE id > 77 ORDER BY id")]


def write(caller: Caller, attempt: int) -> None:
    caller.sql(f"INSERT INTO mine (id) VALUES ({77 + attempt})")


@each(IDLE)
def test_found_idle_the_block_commits_or_keeps_nothing(
    app: Towline, database: Database, kind: Kind
) -> None:
    """O1: the first attempt raises in the block, the second completes the job there."""
    idle_after = []

    @app.task(backoff=AT_ONCE)
    def work(ctx: Context = INJECTED) -> str:
        with calling(app, database, kind) as caller:
            with block(ctx, caller) as tx:
                with pytest.raises(InvalidState):
                    tx.execute("SELECT 1")
                write(caller, ctx.attempt)
                tx.complete("inside")
                if ctx.attempt == 1:
                    raise ValueError("half way")
            idle_after.append(not caller.in_transaction)
        return "ignored"

    with app.worker():
        job = work.enqueue()
        assert job.result(LIMIT) == "inside"
    assert written(database) == [2]
    assert outcomes(app, job.id) == ["failed", "completed"]
    assert idle_after == [True]


@each(OPEN)
def test_in_its_own_transaction_the_application_commits(
    app: Towline, database: Database, kind: Kind
) -> None:
    """O1: nothing is there before that, then all of it."""
    before: list[Any] = []

    @app.task
    def work(ctx: Context = INJECTED) -> str:
        with calling(app, database, kind) as caller:
            with block(ctx, caller) as tx:
                write(caller, ctx.attempt)
                tx.complete("inside")
            before.append((app.job(ctx.job_id).state, written(database)))
            assert caller.in_transaction
            caller.commit()
        return "ignored"

    with app.worker():
        job = work.enqueue()
        assert job.result(LIMIT) == "inside"
    assert before == [(State.RUNNING, [])]
    assert written(database) == [1]
    until(lambda: outcomes(app, job.id) == ["completed"])


@each(OPEN)
def test_an_application_that_rolls_back_silently_gets_another_attempt(
    app: Towline, database: Database, kind: Kind
) -> None:
    """O1, O8: what it returns is not taken for the job's end."""

    @app.task(backoff=AT_ONCE)
    def work(ctx: Context = INJECTED) -> str:
        with calling(app, database, kind) as caller:
            with block(ctx, caller) as tx:
                write(caller, ctx.attempt)
                tx.complete("inside")
            caller.rollback() if ctx.attempt == 1 else caller.commit()
        return "ignored"

    with app.worker():
        job = work.enqueue()
        assert job.result(LIMIT) == "inside"
    assert written(database) == [2]
    assert outcomes(app, job.id) == ["failed", "completed"]
    assert "not committed" in (app.attempts(job.id)[0].error or "")


@each(CELLS)
def test_a_handler_that_lost_its_job_is_refused(
    app: Towline, database: Database, kind: Kind
) -> None:
    """O1, L3: LeaseLost, and an idle connection is left idle."""
    gate = Gate()
    found: list[Any] = []

    @app.task
    def work(ctx: Context = INJECTED) -> None:
        gate.enter()
        with calling(app, database, kind) as caller:
            try:
                with block(ctx, caller):
                    found.append("entered")
            except LeaseLost:
                found.append(caller.in_transaction)
            caller.rollback()

    with app.worker():
        job = work.enqueue()
        gate.wait_inside()
        job.cancel()
        gate.open()
        until(lambda: found)
    assert found == [kind.in_transaction]
    assert job.refresh().state is State.CANCELLED


@each(IDLE)
def test_not_completing_is_just_a_transaction(app: Towline, database: Database, kind: Kind) -> None:
    """O1: the value that is returned counts."""

    @app.task
    def work(ctx: Context = INJECTED) -> str:
        with calling(app, database, kind) as caller:
            with block(ctx, caller):
                write(caller, ctx.attempt)
        return "returned"

    with app.worker():
        assert work.enqueue().result(LIMIT) == "returned"
    assert written(database) == [1]


def test_an_end_that_is_not_committed_yet_holds_up_nothing_of_its_worker(
    app: Towline, postgres: Database
) -> None:
    """O1, P9, finding P8: others of the same task and worker end meanwhile."""
    gate = Gate()

    @app.task
    def work(slow: bool, ctx: Context = INJECTED) -> str:
        if slow:
            with postgres.connect() as connection:
                connection.execute("INSERT INTO mine (id) VALUES (78)")
                with ctx.transaction(on=connection) as tx:
                    tx.complete("slow")
                gate.enter()
        return "quick"

    with app.worker(concurrency=2):
        slow = work.enqueue(True)
        gate.wait_inside()
        others = [work.enqueue(False) for _ in range(3)]
        assert [job.result(LIMIT) for job in others] == ["quick"] * 3
        assert slow.refresh().state is State.RUNNING
        gate.open()
        assert slow.result(LIMIT) == "slow"
    assert written(postgres) == [1]


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
def test_an_end_waits_for_who_holds_a_job_behind_it(
    app: Towline, postgres: Database, awaits: bool
) -> None:
    """O1: as one that cancels it and has not committed, or that ends another of its blockers. The
    job is this worker's still: nothing was lost."""
    gate = Gate()

    @app.task
    def blocking(ctx: Context = INJECTED) -> None:
        with ctx.transaction() as tx:
            tx.complete("inside")
            gate.enter()

    @app.task
    async def awaiting(ctx: Context = INJECTED) -> None:
        async with ctx.transaction() as tx:
            tx.complete("inside")
            await asyncio.to_thread(gate.enter)

    @app.task
    def behind() -> str:
        return "behind"

    # Before the block holds the job's chain: who enqueues behind it then waits for its end.
    job = (awaiting if awaits else blocking).enqueue()
    after = behind.using(after=[job]).enqueue()
    with app.worker(), postgres.connect() as caller:
        gate.wait_inside()
        app.cancel(after.id, on=caller)
        gate.open()
        time.sleep(0.1)  # it is tried, and put off
        caller.rollback()
        assert job.result(LIMIT) == "inside"
        assert after.result(LIMIT) == "behind"
    assert outcomes(app, job.id) == ["completed"]


def test_an_end_that_others_hold_up_for_too_long_is_no_fault_of_the_job(
    make_app: Callable[..., Towline], postgres: Database
) -> None:
    """O1: nothing of the block is kept, and the job comes again without having used an attempt."""
    app = make_app(lock_timeout=0.1)
    gate = Gate()
    errors: list[Exception] = []

    @app.task
    def behind() -> None: ...

    @app.task(max_attempts=1)
    def work(ctx: Context = INJECTED) -> None:
        try:
            with ctx.transaction() as tx:
                tx.execute("INSERT INTO mine (id) VALUES (78)")
                tx.complete("inside")
                gate.enter()
        except Exception as error:
            errors.append(error)
            raise

    job = work.enqueue()
    after = behind.using(after=[job]).enqueue()
    with app.worker(), postgres.connect() as caller:
        gate.wait_inside()
        app.cancel(after.id, on=caller)
        gate.open()
        until(lambda: outcomes(app, job.id)[:1] == ["snoozed"])
        assert written(postgres) == []
        caller.rollback()
        assert job.result(LIMIT) == "inside"
    assert {type(error) for error in errors} == {WriterBusy}
    assert written(postgres) == [1]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_with_an_old_snapshot_may_be_fenced_and_not_complete(
    app: Towline, postgres: Database, level: str
) -> None:
    """O1, B3, finding P1: who has begun to wait meanwhile would wait for ever."""
    found: list[object] = []

    @app.task
    def work(ctx: Context = INJECTED) -> str:
        with postgres.connect() as connection:
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            connection.execute("SELECT count(*) FROM mine")
            after.using(after=[ctx.job_id]).enqueue()
            with ctx.transaction(on=connection):
                connection.execute("INSERT INTO mine (id) VALUES (78)")
            connection.commit()
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            try:
                with ctx.transaction(on=connection) as tx:
                    tx.complete("inside")
            except WrongIsolation as error:
                found.append(error)
            connection.rollback()
        return "returned"

    @app.task
    def after() -> None:
        pass

    with app.worker():
        job = work.enqueue()
        assert job.result(LIMIT) == "returned"
        until(lambda: [j.state for j in app.jobs(task="after")] == [State.COMPLETED])
    assert len(found) == 1
    assert written(postgres) == [1]


def _session_url(database: Database, sqlite: str, postgres: str) -> str:
    scheme, rest = database.url.split(":", 1)
    return f"{scheme}+{sqlite if database.engine == 'sqlite' else postgres}:{rest}"


def test_an_awaited_session_that_has_begun_and_said_nothing_yet(
    app: Towline, database: Database
) -> None:
    """O1: the same for AsyncSession."""
    text = sqlalchemy.text("INSERT INTO mine (id) VALUES (:id)")

    @app.task(backoff=AT_ONCE)
    async def work(ctx: Context = INJECTED) -> None:
        engine = create_async_engine(_session_url(database, "aiosqlite", "asyncpg"))
        try:
            async with AsyncSession(engine) as session, session.begin():
                async with ctx.transaction(on=session) as tx:
                    await session.execute(text, {"id": 77 + ctx.attempt})
                    tx.complete("inside")
                if ctx.attempt == 1:
                    raise ValueError("after our block, inside of theirs")
        finally:
            await engine.dispose()

    with app.worker():
        job = work.enqueue()
        assert job.result(LIMIT) == "inside"
    assert written(database) == [2]
    assert outcomes(app, job.id) == ["failed", "completed"]
