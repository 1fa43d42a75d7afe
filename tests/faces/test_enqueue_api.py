"""Enqueueing as applications write it, blocking and awaiting, on our connections and on theirs."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MethodType
from typing import Any

import aiosqlite
import pytest

from tests.kit import Clock, claim, completed, continued, new, register, rows
from towline import (
    ChainCancelled,
    ChainFailed,
    DuplicateKey,
    InvalidArguments,
    Job,
    NotFound,
    State,
    StoreUnavailable,
    Task,
    Towline,
    WaitTimeout,
)
from towline.errors import (
    InvalidSetting,
    PayloadTooLarge,
    SchemaMissing,
    StoreError,
    UnsupportedConnection,
    WriterBusy,
)
from towline.operation import Op, Steps
from towline.store import Store

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


class Face:
    """One of the two ways to say the same: `face(job.refresh)` or its awaiting twin."""

    def __init__(self, awaits: bool) -> None:
        self._runner = asyncio.Runner() if awaits else None
        self._open: list[Any] = []

    def __call__(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._runner is None:
            return method(*args, **kwargs)
        assert isinstance(method, MethodType)
        return self.wait(getattr(method.__self__, f"a{method.__name__}")(*args, **kwargs))

    def connect(self, path: Path, *texts: str, **settings: Any) -> Any:
        """The application's own connection, of the face's colour, after these statements."""
        if self._runner is None:
            connection: Any = sqlite3.connect(path, **settings)
        else:
            connection = self.wait(aiosqlite.connect(path, **settings))
        self._open.append(connection)
        for text in texts:
            self.wait(connection.execute(text))
        return connection

    def wait(self, answer: Any) -> Any:
        if not inspect.isawaitable(answer):
            return answer

        async def waiting() -> Any:
            return await answer

        assert self._runner is not None
        return self._runner.run(waiting())

    def close(self) -> None:
        for connection in self._open:
            self.wait(connection.close())
        if self._runner is not None:
            self._runner.close()


@pytest.fixture(params=["blocking", "awaiting"])
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    face = Face(request.param == "awaiting")
    yield face
    face.close()


@pytest.fixture
def add(app: Towline) -> Task[[int, int], int]:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    return add


Add = Task[[int, int], int]


def work(app: Towline, ending: Callable[[Any], Any]) -> None:
    """A worker comes by, takes one job and ends it so."""

    def steps() -> Steps[None]:
        worker = yield from register(app.runner.store)
        (held,) = yield from claim(app.runner.store, worker=worker)
        yield from app.runner.store.finish([ending(held)])

    app.runner.run(Op("work", steps))


# ---- one job


def test_a_job_is_what_was_asked_for(add: Add, face: Face, clock: Clock) -> None:
    at = datetime(2031, 1, 2, 3, 4, 5, 678901, UTC)
    job = face(
        add.using(
            at=at, priority=9, queue="slow", label="nightly", key="k", trace=TRACE, max_attempts=7,
            timeout=timedelta(minutes=1),
        ).enqueue, 2, b=3,
    )  # fmt: skip
    assert (job.id, job.chain_id, job.position, job.created) == (1, 1, 0, True)
    assert (job.task, job.arguments, job.label, job.key) == ("add", '{"a":2,"b":3}', "nightly", "k")
    assert (job.queue, job.priority, job.trace) == ("slow", 9, TRACE)
    assert (job.state, str(job.state), job.run_at) == (State.SCHEDULED, "scheduled", at)
    assert (job.attempt, job.max_attempts, job.record.timeout) == (0, 7, 60_000_000)
    assert job.created_at == datetime.fromtimestamp(clock.time / 1e6, UTC)
    assert (job.started_at, job.ended_at, job.worker) == (None, None, None)
    assert (job.output, job.error, job.progress, job.outcome) == (None, None, None, None)
    record = job.record
    assert face(job.refresh) is job
    assert job.record == record
    assert repr(job) == "<job 1 add scheduled>"


def test_a_handle_follows_its_job(app: Towline, add: Add, face: Face) -> None:
    job = face(add.enqueue, 2, 3)
    with pytest.raises(WaitTimeout, match="chain 1 has not ended within 0 s; it goes on"):
        face(job.result, timeout=0)
    work(app, lambda held: completed(held, "5"))
    assert job.state is State.PENDING, "a snapshot"
    assert face(job.result, timeout=0) == 5
    assert (face(job.refresh).state, job.output, job.attempt) == (State.COMPLETED, 5, 1)


def test_a_handle_cancels_and_retries(app: Towline, add: Add, face: Face) -> None:
    job = face(add.enqueue, 2, 3)
    assert face(job.cancel, "no need", by="me") is job
    assert (job.state, job.error, job.ended_by) == (State.CANCELLED, "no need", "me")
    with pytest.raises(ChainCancelled, match=r"chain 1 cancelled in job 1 \(add\): no need"):
        face(job.result, timeout=0)
    assert face(job.retry).state is State.PENDING
    face(app.fail, job.id, "broken")
    with pytest.raises(ChainFailed) as caught:
        face(job.result, timeout=0)
    assert (caught.value.chain_id, caught.value.reason) == (1, "broken")


def test_calls_are_stored_in_one_go(app: Towline, add: Add, face: Face) -> None:
    """In order; duplicates collapse; what only `after=` names is stored but not answered."""
    hidden = add.using(label="hidden").call(0, 0)
    calls = [
        add.using(after={"sum": hidden}).call(1, 1),
        add.using(key="k").call(2, 2),
        add.using(key="k").call(3, 3),
        add.call(4, 4),
    ]
    jobs = face(app.enqueue_many, calls)
    assert [job.created for job in jobs] == [True, True, False, True]
    assert [job.arguments for job in jobs] == [
        '{"a":1,"b":1}', '{"a":2,"b":2}', '{"a":2,"b":2}', '{"a":4,"b":4}',
    ]  # fmt: skip
    assert jobs[1].id == jobs[2].id
    assert [job.state for job in jobs] == ["blocked", "pending", "pending", "pending"]
    assert len(app.jobs()) == 4
    (blocker,) = face(app.blockers, jobs[0].id)
    (first,) = app.jobs(label="hidden")
    assert (blocker.name, blocker.chain_id) == ("sum", first.id)
    assert face(app.enqueue_many, []) == []


def test_only_calls_can_be_stored(app: Towline, add: Add, face: Face) -> None:
    with pytest.raises(InvalidSetting, match=r"takes calls such as add\.call\(1, 2\), not Task"):
        face(app.enqueue_many, [add])


def test_a_batch_is_on_one_connection(app: Towline, add: Add, face: Face, database: Path) -> None:
    """Also where the call is only named by another: it would be stored outside its transaction."""
    connection = face.connect(database)
    stray = add.using(on=connection).call(1, 2)
    for calls in ([stray], [add.using(after=[stray]).call(3, 4)]):
        with pytest.raises(InvalidSetting, match="say on= to enqueue_many only"):
            face(app.enqueue_many, calls)
    assert len(face(app.enqueue_many, [stray], on=connection)) == 1
    face.wait(connection.rollback())
    assert len(app.jobs()) == 0


def test_E10_a_deduplicated_handle_waits_for_the_chain(app: Towline, add: Add, face: Face) -> None:
    first = face(add.using(key="k").enqueue, 1, 2)
    work(app, lambda held: continued(held, new("add", arguments='{"a":3,"b":4}')))
    second = face(add.using(key="k").enqueue, 5, 6)
    assert (second.created, second.chain_id, second.id) == (False, first.id, first.id + 1)
    assert (second.position, second.arguments) == (1, '{"a":3,"b":4}')
    work(app, lambda held: completed(held, "7"))
    assert face(first.result, timeout=0) == face(second.result, timeout=0) == 7
    with pytest.raises(DuplicateKey) as caught:
        face(add.using(key="k", scope="any", on_conflict="raise").enqueue, 1, 1)
    assert caught.value.chain_id == first.id


# ---- E6, E7, E8: refused before the database is touched


def untouchable(database: Path) -> None:
    """Whoever touches the database fails."""
    database.write_bytes(b"this is no database")


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "text"),
    [
        ((1,), {}, InvalidArguments, "add(a: int, b: int) -> int: argument 'b' is missing"),
        ((1, 2, 3), {}, InvalidArguments, "at most 2 positional arguments, 3 were given"),
        ((1, 2), {"c": 3}, InvalidArguments, "add(a: int, b: int) -> int: unknown argument 'c'"),
        ((1, "2"), {}, InvalidArguments, "argument 'b' expects int, was given str"),
        ((1, object()), {}, InvalidArguments, "argument 'b' expects int, was given object"),
    ],
)
def test_E7_wrong_arguments_never_reach_the_database(
    make_app: Callable[..., Towline], face: Face, database: Path,
    args: tuple[Any, ...], kwargs: dict[str, Any], error: type[Exception], text: str,
) -> None:  # fmt: skip
    untouchable(database)

    def add(a: int, b: int) -> int:
        return a + b

    task: Task[..., int] = make_app().task(add)
    with pytest.raises(error) as caught:
        face(task.enqueue, *args, **kwargs)
    assert not isinstance(caught.value, StoreError)
    assert text in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: "a"}, "\ud800", {3}, 1j])
def test_E7_what_json_would_change_never_reaches_the_database(
    make_app: Callable[..., Towline], face: Face, database: Path, value: Any
) -> None:
    untouchable(database)
    app = make_app()

    @app.task
    def anything(value: Any) -> None: ...

    with pytest.raises(InvalidArguments, match=r"anything.*: argument 'value'"):
        face(anything.enqueue, value)
    with pytest.raises(InvalidArguments, match=r"anything.*: argument 'value'"):
        face(anything.enqueue, [{"deep": value}])


def test_E8_a_payload_over_the_limit_is_refused_with_its_size(
    make_app: Callable[..., Towline], face: Face, database: Path
) -> None:
    app = make_app(payload_limit=100)

    @app.task
    def echo(text: str) -> str:
        return text

    fits = "x" * (100 - len('{"text":""}'))
    assert face(echo.enqueue, fits).arguments == f'{{"text":"{fits}"}}'
    with pytest.raises(PayloadTooLarge, match=r"arguments of echo take 101 bytes; .* 100 bytes"):
        face(echo.enqueue, fits + "x")
    with pytest.raises(PayloadTooLarge, match="arguments of echo take 101 bytes"):
        face(echo.enqueue, fits[:-1] + "ä")  # bytes, not characters
    with pytest.raises(PayloadTooLarge, match="result of echo takes 101 bytes"):
        face(app.complete, 1, "x" * 99)
    assert face(app.complete, 1, "x" * 98).output == "x" * 98
    assert len(app.jobs()) == 1


def test_E8_the_limit_is_a_mebibyte_by_default(make_app: Callable[..., Towline]) -> None:
    app = make_app()

    @app.task
    def echo(text: str) -> None: ...

    assert echo.enqueue("x" * (2**20 - 11)).id == 1
    with pytest.raises(
        PayloadTooLarge, match=r"1,048,577 bytes; the limit is 1,048,576 bytes.*payload_limit="
    ):
        echo.enqueue("x" * (2**20 - 10))


# ---- E3: errors of the driver


def held_by_another(database: Path) -> Any:
    """Somebody else writes and does not end."""
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return closing(other)


@pytest.mark.parametrize("before", [(), ("BEGIN",), ("BEGIN", "SELECT * FROM towline_job")])
def test_E3_a_locked_database_reaches_the_caller_unchanged(
    add: Add, face: Face, database: Path, before: tuple[str, ...]
) -> None:
    connection = face.connect(database, *before, timeout=0)
    with held_by_another(database):
        with pytest.raises(sqlite3.OperationalError) as caught:
            face(add.using(on=connection).enqueue, 1, 2)
        assert type(caught.value) is sqlite3.OperationalError
        assert caught.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
        assert connection.in_transaction is bool(before)
    assert face(add.using(on=connection).enqueue, 1, 2).id == 1
    face.wait(connection.commit())
    assert add.enqueue(1, 2).id == 2


def test_E11_an_untouched_transaction_waits_for_the_writer_as_the_caller_has_set(
    app: Towline, add: Add, face: Face, database: Path
) -> None:
    """A deferred transaction that has not read yet can wait; one that has cannot."""
    connection = face.connect(database, timeout=60)
    face(app.counts, on=connection)
    face.wait(connection.execute("BEGIN"))
    other = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    ending = threading.Timer(0.1, other.execute, ["COMMIT"])
    ending.start()
    assert face(add.using(on=connection).enqueue, 1, 2).id == 1
    ending.join()
    other.close()
    face.wait(connection.commit())
    assert len(app.jobs()) == 1


def test_E3_a_stale_snapshot_reaches_the_caller_unchanged(
    add: Add, face: Face, database: Path
) -> None:
    """Read, then write, after somebody else has committed: only the caller can begin anew."""
    connection = face.connect(database, "BEGIN")
    (count,) = face.wait(
        face.wait(connection.execute("SELECT count(*) FROM towline_job")).fetchone()
    )
    assert count == 0
    add.enqueue(1, 2)
    with pytest.raises(sqlite3.OperationalError) as caught:
        face(add.using(on=connection).enqueue, 3, 4)
    assert caught.value.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT
    assert connection.in_transaction
    face.wait(connection.rollback())
    assert face(add.using(on=connection).enqueue, 3, 4).id == 2


def test_E3_a_closed_connection_reaches_the_caller_unchanged(add: Add, database: Path) -> None:
    connection = sqlite3.connect(database)
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        add.using(on=connection).enqueue(1, 2)


def test_E3_a_connection_of_another_thread_reaches_the_caller_unchanged(
    add: Add, database: Path
) -> None:
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            add.using(on=connection).enqueue(1, 2)
        except sqlite3.ProgrammingError as error:
            errors.append(error)

    with closing(sqlite3.connect(database)) as connection:
        connection.text_factory = bytes
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert connection.text_factory is bytes
    assert "thread" in str(errors[0])


def test_E3_our_own_locked_database_is_an_error_that_says_repeat(
    make_app: Callable[..., Towline], face: Face, database: Path
) -> None:
    app = make_app(lock_timeout=0.02)
    app.migrate()

    @app.task
    def ping() -> None: ...

    with held_by_another(database), pytest.raises(WriterBusy) as caught:
        face(ping.enqueue)
    assert isinstance(caught.value, StoreUnavailable)
    assert caught.value.retry_safe
    assert face(ping.enqueue).id == 1


def test_E3_another_driver_error_of_ours_says_not_to_repeat(
    app: Towline, add: Add, face: Face, database: Path
) -> None:
    rows(database, "ALTER TABLE towline_live RENAME TO gone")
    with pytest.raises(StoreError, match="no such table: towline_live") as caught:
        face(add.enqueue, 1, 2)
    assert not caught.value.retry_safe
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    rows(database, "ALTER TABLE gone RENAME TO towline_live")
    assert face(add.enqueue, 1, 2).id == 1, "nothing was stored before"


# ---- E11: other connections of the same driver


class Strict(sqlite3.Connection):
    """A connection as applications derive them: its cursors are its own."""

    def cursor(self) -> sqlite3.Cursor:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        cursor = super().cursor(sqlite3.Cursor)
        cursor.row_factory = sqlite3.Row
        return cursor


def test_E11_a_derived_connection_is_a_connection(app: Towline, add: Add, database: Path) -> None:
    with closing(sqlite3.connect(database, factory=Strict)) as connection:
        assert add.using(on=connection).enqueue(1, 2).id == 1
        assert app.job(1, on=connection).arguments == '{"a":1,"b":2}'
        connection.commit()
    assert app.job(1).state is State.PENDING


def test_E11_an_awaiting_method_takes_a_blocking_connection(
    app: Towline, add: Add, database: Path
) -> None:
    """It belongs to the thread of the loop, and is used there."""
    with closing(sqlite3.connect(database)) as connection:

        async def main() -> int:
            job: Job[int] = await add.using(on=connection).aenqueue(1, 2)
            return (await job.arefresh(on=connection)).id

        assert asyncio.run(main()) == 1
        assert connection.in_transaction
        connection.rollback()
    assert len(app.jobs()) == 0


def test_E11_a_cancelled_await_leaves_nothing_partial(app: Towline, database: Path) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def slow(store: Store) -> Op[None]:
        def steps() -> Steps[None]:
            yield from store.enqueue([new()])
            reached.set()
            assert go_on.wait(20)
            yield from store.enqueue([new()])

        return Op("slow", steps)

    async def main() -> None:
        async with aiosqlite.connect(database, isolation_level=None) as connection:
            task = asyncio.create_task(app.runner.arun(slow(app.runner.store), on=connection))
            await asyncio.to_thread(reached.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            go_on.set()
            ids = [job.id for job in await app.ajobs(newest=False, on=connection)]
            assert ids == [1, 2], "it was in another thread's hands and ran to its end"
            assert not connection.in_transaction

    asyncio.run(main())


# ---- E14: what one may hand in, and when


def test_E14_an_unsupported_object_is_refused_with_what_is_supported(
    app: Towline, add: Add, face: Face, database: Path
) -> None:
    job = add.enqueue(1, 2)
    text = "supported are: sqlite3.Connection, aiosqlite.Connection"
    with pytest.raises(UnsupportedConnection, match=f"cannot use builtins.str with .*; {text}"):
        face(add.using(on=str(database)).enqueue, 1, 2)
    with closing(sqlite3.connect(database)) as connection:
        with pytest.raises(UnsupportedConnection, match=f"sqlite3.Cursor with .*; {text}"):
            face(app.jobs, on=connection.cursor())
    with pytest.raises(UnsupportedConnection, match=text):
        face(job.refresh, on=object())


@pytest.mark.parametrize("fresh", [True, False])
def test_E14_blocking_on_an_awaiting_connection_names_the_twin(
    app: Towline, make_app: Callable[..., Towline], database: Path, fresh: bool
) -> None:
    app = make_app() if fresh else app

    @app.task
    def ping() -> None: ...

    async def main() -> None:
        async with aiosqlite.connect(database) as connection:
            with pytest.raises(UnsupportedConnection, match=r"must be awaited: .*aenqueue"):
                ping.using(on=connection).enqueue()
            with pytest.raises(UnsupportedConnection, match=r"must be awaited: .* begins with a"):
                app.job(1, on=connection)
            assert not connection.in_transaction
            assert (await ping.using(on=connection).aenqueue()).id == 1

    asyncio.run(main())


@pytest.fixture
def unmigrated(make_app: Callable[..., Towline], database: Path) -> Callable[..., Task[[], None]]:
    """A task of an app whose database has only the application's table."""

    def make(**settings: Any) -> Task[[], None]:
        rows(database, "CREATE TABLE mine (id INTEGER PRIMARY KEY)")
        app = make_app(**settings)

        @app.task
        def ping() -> None: ...

        return ping

    return make


@pytest.mark.parametrize("begin", ["BEGIN", "BEGIN IMMEDIATE"])
@pytest.mark.parametrize("migrate", [True, False])
def test_E14_tables_cannot_be_made_inside_the_callers_transaction(
    unmigrated: Callable[..., Task[[], None]], face: Face, database: Path, begin: str, migrate: bool
) -> None:
    ping = unmigrated(migrate=migrate, lock_timeout=0)
    connection = face.connect(database, begin)
    with pytest.raises(SchemaMissing, match=r"call app\.migrate\(\)"):
        face(ping.using(on=connection).enqueue)
    assert connection.in_transaction
    face.wait(connection.execute("INSERT INTO mine VALUES (1)"))
    face.wait(connection.commit())
    assert rows(database, "SELECT name, (SELECT count(*) FROM mine) FROM sqlite_master") == [
        ("mine", 1)
    ]


def test_E14_an_idle_connection_gets_its_tables(
    unmigrated: Callable[..., Task[[], None]], face: Face, database: Path
) -> None:
    ping = unmigrated()
    connection = face.connect(database)
    job = face(ping.using(on=connection).enqueue)
    assert connection.in_transaction
    face.wait(connection.rollback())
    with pytest.raises(NotFound):
        face(job.refresh, on=connection)
    assert rows(database, "SELECT count(*) FROM towline_job") == [(0,)]


def test_E14_without_leave_no_tables_are_made(
    unmigrated: Callable[..., Task[[], None]], face: Face, database: Path
) -> None:
    ping = unmigrated(migrate=False)
    connection = face.connect(database)
    for method in (ping.using(on=connection).enqueue, ping.enqueue):
        with pytest.raises(SchemaMissing, match=r"`towline migrate` or call app\.migrate\(\)"):
            face(method)
    assert not connection.in_transaction
    assert rows(database, "SELECT name FROM sqlite_master") == [("mine",)]


def test_E14_a_connection_to_another_database_is_told(add: Add, face: Face, tmp_path: Path) -> None:
    connection = face.connect(tmp_path / "another.db")
    for _ in range(2):
        with pytest.raises(
            UnsupportedConnection, match=r"another\.db, and this app is on .*app\.db"
        ):
            face(add.using(on=connection).enqueue, 1, 2)
        assert not connection.in_transaction
    assert rows(tmp_path / "another.db", "SELECT name FROM sqlite_master") == []


# ---- S5


def test_a_batch_may_be_any_iterable(app: Towline, add: Add, face: Face) -> None:
    """Finding S5: a generator can be read once only."""
    jobs = face(app.enqueue_many, (add.call(number, 1) for number in range(3)))
    assert [job.arguments for job in jobs] == ['{"a":0,"b":1}', '{"a":1,"b":1}', '{"a":2,"b":1}']
    assert len(app.jobs()) == 3


def test_a_page_shows_what_is_in_it(app: Towline, add: Add, face: Face) -> None:
    for _ in range(2):
        face(add.enqueue, 1, 2)
    page = face(app.jobs, limit=1)
    assert repr(page) == "<page [<job 2 add pending>], cursor '2'>"


# ---- T1


def test_T1_traces_of_jobs_calls_and_blockers(app: Towline, add: Add, face: Face) -> None:
    first = face(add.using(trace=TRACE).enqueue, 1, 2)
    call = add.using(trace=OTHER).call(3, 4)
    untraced = add.call(5, 6)
    chain = face(app.chain, first.id)
    (job,) = face(app.enqueue_many, [add.using(after=[chain, call, untraced]).call(7, 8)])
    assert (first.trace, chain.trace, job.trace) == (TRACE, TRACE, None)
    assert [blocker.trace for blocker in face(app.blockers, job.id)] == [TRACE, OTHER, None]
    by_handle = face(add.using(after=[first]).enqueue, 1, 1)
    assert [blocker.trace for blocker in face(app.blockers, by_handle.id)] == [TRACE]
    done = face(app.complete, first.id, add.then(9, 9))
    assert face(app.job, done.continued_by).trace == TRACE
