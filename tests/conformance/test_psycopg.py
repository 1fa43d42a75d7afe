"""What psycopg alone has: blocks, cursors kept by the server, pipelines, a failed transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus

from tests.conformance.caller import Caller
from tests.database import Database
from tests.kit import claim, completed, new
from towline import State, Towline
from towline.errors import UnsupportedConnection, WrongIsolation
from towline.operation import Op, Steps


class Undo(Exception):
    """Ends a block that is to leave nothing."""


@contextmanager
def block(caller: Caller) -> Iterator[None]:
    """`with connection.transaction()`, or `async with`."""
    if isinstance(caller.raw, psycopg.Connection):
        with caller.raw.transaction():
            yield
        return
    transaction = caller.raw.transaction()
    caller.wait(transaction.__aenter__())
    try:
        yield
    except BaseException as error:
        if not caller.wait(transaction.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        caller.wait(transaction.__aexit__(None, None, None))


def stored(app: Towline) -> list[int]:
    return [job.id for job in app.jobs(newest=False)]


def read_and_write(app: Towline) -> list[Op[Any]]:
    return [app.runner.store.counts(), app.runner.store.enqueue([new()])]


def test_E1_a_block_keeps_its_jobs_and_one_inside_it_can_lose_its_own(
    app: Towline, psycopg_caller: Caller
) -> None:
    caller = psycopg_caller
    with block(caller):
        (first,) = caller.enqueue()
        with suppress(Undo), block(caller):
            caller.enqueue()
            raise Undo
        with block(caller):
            (second,) = caller.enqueue()
        assert stored(app) == []
    caller.commit()  # of what was open before the block, where it was
    assert stored(app) == [first.id, second.id]


def test_E2_a_cursor_kept_by_the_server_goes_on(app: Towline, psycopg_caller: Caller) -> None:
    caller = psycopg_caller
    caller.begin()
    caller.sql("DECLARE reading CURSOR FOR SELECT generate_series(1, 3)")

    def fetch() -> Any:
        return caller.next(caller.sql("FETCH reading"))

    seen = [fetch()]
    caller.enqueue()
    seen.append(fetch())
    with pytest.raises(ZeroDivisionError):
        caller.run(Op("interrupted", lambda: interrupted(app)))
    seen += [fetch(), fetch()]
    assert seen == [(1,), (2,), (3,), None]


def interrupted(app: Towline) -> Steps[None]:
    yield from app.runner.store.enqueue([new()])
    raise ZeroDivisionError


def test_E3_in_a_failed_transaction_the_servers_own_error_arrives(
    app: Towline, psycopg_caller: Caller
) -> None:
    caller = psycopg_caller
    caller.begin()
    with pytest.raises(psycopg.errors.DivisionByZero):
        caller.sql("SELECT 1 / 0")
    for op in read_and_write(app):
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            caller.run(op)
        assert caller.raw.info.transaction_status == TransactionStatus.INERROR
    caller.rollback()
    (record,) = caller.enqueue()
    caller.commit()
    assert stored(app) == [record.id]


def test_E3_a_wait_the_caller_has_limited_ends_in_the_drivers_error(
    app: Towline, psycopg_caller: Caller, database: Database
) -> None:
    """Another transaction has taken the key; what we had begun is undone, the rest is kept."""
    caller = psycopg_caller
    with closing(database.connect()) as other:
        app.runner.run(app.runner.store.enqueue([new(key="k")]), on=other)
        caller.begin()
        caller.sql("SET LOCAL lock_timeout = '20ms'")
        (kept,) = caller.enqueue()
        with pytest.raises(psycopg.errors.LockNotAvailable):
            caller.enqueue(new(), new(key="k"))
        assert caller.in_transaction
        other.rollback()
        ((mine, created),) = caller.run(app.runner.store.enqueue([new(key="k")]))
        caller.commit()
    assert created
    assert stored(app) == [kept.id, mine.id]


def test_E3_a_closed_connection_says_so(app: Towline, postgres: Database) -> None:
    connection = postgres.connect()
    connection.close()
    for op in read_and_write(app):
        with pytest.raises(psycopg.OperationalError, match="closed"):
            app.runner.run(op, on=connection)


def test_E2_blocking_on_an_awaiting_connection_names_the_twin(
    make_app: Callable[..., Towline], postgres: Database
) -> None:
    app = make_app()

    @app.task
    def ping() -> None: ...

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
            with pytest.raises(UnsupportedConnection, match=r"must be awaited: .*aenqueue"):
                ping.using(on=connection).enqueue()
            with pytest.raises(UnsupportedConnection, match=r"must be awaited: .* begins with a"):
                app.job(1, on=connection)
            assert connection.info.transaction_status == TransactionStatus.IDLE
            await ping.using(on=connection).aenqueue()

    asyncio.run(main())
    assert len(app.jobs()) == 1


def test_E2_the_awaiting_face_takes_a_blocking_connection(app: Towline, postgres: Database) -> None:
    async def main(connection: Any) -> None:
        await app.runner.arun(app.runner.store.enqueue([new()]), on=connection)

    with closing(postgres.connect()) as connection:
        asyncio.run(main(connection))
        assert stored(app) == []
        connection.commit()
    assert len(stored(app)) == 1


@pytest.mark.parametrize("awaits", [False, True])
def test_E11_a_connection_without_an_encoding_gives_us_text(
    app: Towline, postgres: Database, awaits: bool
) -> None:
    """psycopg gives its application bytes then, and takes str all the same."""
    store = app.runner.store
    jobs = [new("Blüte", label="日本"), new("Blüte", label="plain", key="日本")]

    async def main() -> list[Any]:
        async with await psycopg.AsyncConnection.connect(postgres.url) as raw:
            await raw.execute("SET client_encoding TO SQL_ASCII")
            await app.runner.arun(store.enqueue(jobs[:1]), on=raw)
            await app.runner.arun(store.enqueue(jobs), on=raw)
            return [await app.runner.arun(store.job(id), on=raw) for id in (1, 2, 3)]

    def blocking() -> list[Any]:
        with postgres.connect() as raw:
            raw.execute("SET client_encoding TO SQL_ASCII")
            app.runner.run(store.enqueue(jobs[:1]), on=raw)
            app.runner.run(store.enqueue(jobs), on=raw)
            return [app.runner.run(store.job(id), on=raw) for id in (1, 2, 3)]

    records = asyncio.run(main()) if awaits else blocking()
    assert [(record.task, record.label, record.key) for record in records] == [
        ("Blüte", "日本", None), ("Blüte", "日本", None), ("Blüte", "plain", "日本"),
    ]  # fmt: skip


@pytest.mark.parametrize("threshold", [0, 1, None])
def test_E2_nothing_is_prepared_on_the_callers_connection(
    app: Towline, postgres: Database, threshold: int | None
) -> None:
    """However it is set, and however often we come: a pooler may stand between."""
    store = app.runner.store

    def work() -> Steps[int]:
        yield from store.enqueue([new(), new(key="k"), new("behind", after=[])])
        held = yield from claim(store, 3)
        return len((yield from store.finish([completed(job) for job in held])).accepted)

    with closing(postgres.connect(prepare_threshold=threshold)) as connection:
        done = [app.runner.run(Op("work", work), on=connection) for _ in range(12)]
        connection.commit()
        assert connection.prepare_threshold == threshold
        text = "SELECT count(*) FROM pg_prepared_statements"
        ((prepared,),) = connection.execute(text, prepare=False).fetchall()
    assert done == [3] * 12
    assert prepared == 0
    assert {job.state for job in app.jobs()} == {State.COMPLETED}


@pytest.mark.parametrize("level", list(IsolationLevel))
def test_E2_any_isolation_level_is_kept(
    app: Towline, postgres: Database, level: IsolationLevel
) -> None:
    with closing(postgres.connect()) as connection:
        connection.isolation_level = level
        ((first, _),) = app.runner.run(app.runner.store.enqueue([new()]), on=connection)
        app.runner.run(app.runner.store.enqueue([new(after=[first.id])]), on=connection)
        if level in (IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE):
            with pytest.raises(WrongIsolation):  # finding P1
                app.runner.run(app.runner.store.complete(first.id, "1"), on=connection)
        else:
            app.runner.run(app.runner.store.complete(first.id, "1"), on=connection)
        (found,) = connection.execute("SHOW transaction_isolation").fetchone()
        assert found == level.name.lower().replace("_", " ")
        connection.commit()
        assert connection.isolation_level is level
    if app.job(first.id).state is State.PENDING:
        app.complete(first.id, 1)
    assert [job.state for job in app.jobs(newest=False)] == [State.COMPLETED, State.PENDING]


def test_E13_reading_works_where_writing_is_forbidden(app: Towline, postgres: Database) -> None:
    app.runner.run(app.runner.store.enqueue([new()]))
    with closing(postgres.connect()) as connection:
        connection.read_only = True
        assert app.counts(on=connection) == {"default": {State.PENDING: 1}}
        assert [job.id for job in app.jobs(on=connection)] == [1]
        assert app.chain(1, on=connection).state == "open"
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            app.runner.run(app.runner.store.enqueue([new()]), on=connection)
        assert connection.read_only


def test_E1_inside_a_pipeline(app: Towline, postgres: Database) -> None:
    with closing(postgres.connect()) as connection:
        with connection.pipeline():
            connection.execute("INSERT INTO mine DEFAULT VALUES")
            app.runner.run(app.runner.store.enqueue([new(), new(key="k")]), on=connection)
            with pytest.raises(ZeroDivisionError):
                app.runner.run(Op("interrupted", lambda: interrupted(app)), on=connection)
            connection.execute("INSERT INTO mine DEFAULT VALUES")
            assert stored(app) == []
        connection.commit()
    assert len(stored(app)) == 2
    assert postgres.rows("SELECT count(*) FROM mine") == [(2,)]
