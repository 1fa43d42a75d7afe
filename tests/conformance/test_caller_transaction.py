"""What we do on a connection we were handed: E1, E2, E10 to E14, on every kind and in every state.

Where `play` commits by itself, a `caller` here decides about its own transaction.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
import pytest

from tests.conformance.conftest import OPEN
from tests.kit import Clock, claim, failed, new, register, rows
from windlass import Job, NotFound, State, Windlass
from windlass.errors import BlockerError
from windlass.model import JobRecord, NewJob
from windlass.operation import Op, Steps, compose
from windlass.store import Store

T = TypeVar("T")

# An aiosqlite connection: its isolation level, and what the caller has done before.
AWAITED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "aiosqlite, idle": ("", ()),
    "aiosqlite, writing": ("", ("BEGIN IMMEDIATE", "INSERT INTO mine DEFAULT VALUES")),
    "aiosqlite autocommit, idle": (None, ()),
    "aiosqlite hostile, idle": ("", ()),
}
KINDS = (*OPEN, *AWAITED)


class Caller:
    """An application with an open connection; the same words for both colours."""

    def __init__(self, kind: str, app: Windlass, path: Path) -> None:
        self.kind = kind
        self.app = app
        self.called: set[str] = set()
        self._runner = asyncio.Runner() if kind in AWAITED else None
        self.raw: Any = self.wait(_open_awaited(kind, path)) if self._runner else OPEN[kind](path)
        self.driver: sqlite3.Connection = getattr(self.raw, "_conn", self.raw)

    @property
    def place(self) -> str:
        """The row of the table of DESIGN that this kind begins in."""
        if "writing" in self.kind or "deferred" in self.kind or "autocommit=False" in self.kind:
            return "in a transaction"
        return "autocommit" if "autocommit" in self.kind else "opens by itself"

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.in_transaction)

    def sql(self, text: str) -> Any:
        """Run a statement of the application; the cursor comes back."""
        return self._finish(self.raw.execute(text))

    def next(self, cursor: Any) -> Any:
        """The next row of the application's cursor, as it would be without factories."""
        row = self._finish(cursor.fetchone())
        return row["hostile"] if isinstance(row, dict) else row

    def begin(self) -> None:
        if not self.in_transaction:
            self.sql("BEGIN")

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def _end(self, word: str) -> None:
        """With autocommit=True the methods do nothing: who begins by SQL also ends by SQL."""
        if "autocommit=True" not in self.kind:
            self._finish(getattr(self.raw, word.lower())())
        elif self.in_transaction:
            self.sql(word)

    def close(self) -> None:
        self._finish(self.raw.close())
        if self._runner:
            self._runner.close()

    def run(self, op: Op[T], app: Windlass | None = None) -> T:
        """Run an operation on this connection, blocking or awaiting as it must be."""
        app = app or self.app
        if self._runner:
            return self._runner.run(app.arun(op, on=self.raw))
        return app.run(op, on=self.raw)

    def call(self, name: str, *args: Any, of: object = None, **kwargs: Any) -> Any:
        """Call a method of the app, or of a handle, on this connection."""
        if of is None:
            self.called.add(name)
        method = getattr(of or self.app, ("a" if self._runner else "") + name)
        return self._finish(method(*args, **kwargs, on=self.raw))

    def enqueue(self, *jobs: NewJob) -> list[JobRecord]:
        return [record for record, _ in self.run(self.app.store.enqueue(jobs or [new()]))]

    def settings(self) -> tuple[object, ...]:
        """All that an application sets on its connection."""
        driver = self.driver

        def read() -> tuple[object, ...]:
            return (
                driver.isolation_level,
                driver.row_factory,
                driver.text_factory,
                getattr(driver, "autocommit", None),
            )

        settings: tuple[object, ...]
        settings = self.wait(self.raw._execute(read)) if self._runner else read()
        return settings

    def _finish(self, answer: Any) -> Any:
        return self.wait(answer) if inspect.isawaitable(answer) else answer

    def wait(self, awaitable: Any) -> Any:
        async def waiting() -> Any:
            return await awaitable

        assert self._runner is not None
        return self._runner.run(waiting())


async def _open_awaited(kind: str, path: Path) -> aiosqlite.Connection:
    level, before = AWAITED[kind]
    connection = await aiosqlite.connect(path, isolation_level=level)
    if "hostile" in kind:
        driver: sqlite3.Connection = connection._conn
        driver.row_factory = lambda cursor, row: {"hostile": row}
        driver.text_factory = bytes
    for text in before:
        await connection.execute(text)
    return connection


@pytest.fixture
def open_caller(app: Windlass, database: Path) -> Iterator[Callable[[str], Caller]]:
    """Open a caller of any kind beside a table of its own."""
    callers: list[Caller] = []

    def make(kind: str) -> Caller:
        caller = Caller(kind, app, database)
        callers.append(caller)
        return caller

    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY)")
    connection.commit()
    connection.close()
    yield make
    for caller in callers:
        caller.close()
    sqlite3.converters.pop("INTEGER", None)
    sqlite3.converters.pop("TEXT", None)


@pytest.fixture(params=KINDS)
def caller(request: pytest.FixtureRequest, open_caller: Callable[[str], Caller]) -> Caller:
    return open_caller(request.param)


def stored(app: Windlass) -> list[int]:
    """The jobs that everybody else sees."""
    return [job.id for job in app.jobs(newest=False)]


# ---- E1: with the caller's commit, or not at all


def test_E1_a_job_is_seen_exactly_when_the_caller_commits(app: Windlass, caller: Caller) -> None:
    caller.begin()
    (record,) = caller.enqueue()
    assert stored(app) == []
    with pytest.raises(NotFound):
        app.job(record.id)
    caller.commit()
    assert app.job(record.id).state is State.PENDING


def test_E1_a_rollback_leaves_no_job(app: Windlass, caller: Caller, database: Path) -> None:
    caller.begin()
    caller.sql("INSERT INTO mine DEFAULT VALUES")
    caller.enqueue(new(key="k"), new())
    caller.rollback()
    assert stored(app) == []
    assert rows(database, "SELECT * FROM mine") == []
    ((_, created),) = app.run(app.store.enqueue([new(key="k")]))
    assert created, "the key went with the rollback"


def test_E1_a_savepoint_takes_its_jobs_along(app: Windlass, caller: Caller, database: Path) -> None:
    """Rolled back, while the outer transaction commits. The name is one we use ourselves."""
    caller.begin()
    (kept,) = caller.enqueue()
    caller.sql("SAVEPOINT windlass")
    caller.sql("INSERT INTO mine DEFAULT VALUES")
    (gone,) = caller.enqueue()
    caller.sql("ROLLBACK TO windlass")
    caller.sql("RELEASE windlass")
    (after,) = caller.enqueue(new("b"))
    caller.commit()
    assert stored(app) == [kept.id, after.id]
    assert after.id == gone.id, "the id of a job that never existed is free"
    assert app.job(after.id).task == "b"


# ---- E2, E11: the table of DESIGN, cell by cell


def test_E11_an_operation_leaves_the_connection_as_tabled(app: Windlass, caller: Caller) -> None:
    began = caller.place == "in a transaction"
    assert caller.in_transaction is began

    caller.run(app.store.counts())
    assert caller.in_transaction is began, "reading opens nothing"

    (record,) = caller.enqueue()
    assert caller.in_transaction is (caller.place != "autocommit")
    assert stored(app) == ([record.id] if caller.place == "autocommit" else [])

    (second,) = caller.enqueue()
    assert caller.in_transaction is (caller.place != "autocommit")
    caller.commit()
    assert stored(app) == [record.id, second.id]


def interrupted(store: Store) -> Op[None]:
    """An operation that fails after it has written."""

    def steps() -> Steps[None]:
        yield from store.enqueue([new(), new(key="k")])
        raise ZeroDivisionError

    return compose("interrupted", steps)


def unknown_blocker(store: Store) -> Op[Any]:
    """A batch whose keys are taken before its last job turns out to be impossible."""
    return store.enqueue([new(key="k"), new(), new(after=[404])])


@pytest.mark.parametrize(
    ("broken", "error"), [(interrupted, ZeroDivisionError), (unknown_blocker, BlockerError)]
)
def test_E11_a_failed_operation_leaves_nothing_partial(
    app: Windlass,
    caller: Caller,
    database: Path,
    broken: Callable[[Store], Op[Any]],
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        caller.run(broken(app.store))
    assert caller.in_transaction is (caller.place == "in a transaction"), "we end what we began"
    ((_, created),) = caller.run(app.store.enqueue([new(key="k")]))
    assert created, "the key was given back"
    caller.commit()
    assert stored(app) == [1]
    assert rows(database, "SELECT count(*) FROM mine") == [("writing" in caller.kind,)]


def test_E11_a_failed_operation_keeps_what_the_caller_did_before(
    app: Windlass, caller: Caller, database: Path
) -> None:
    caller.begin()
    caller.sql("INSERT INTO mine (id) VALUES (77)")
    caller.enqueue()
    with pytest.raises(ZeroDivisionError):
        caller.run(interrupted(app.store))
    assert caller.in_transaction
    caller.enqueue(new("b"))
    caller.commit()
    assert [job.task for job in app.jobs(newest=False)] == ["a", "b"]
    assert (77,) in rows(database, "SELECT id FROM mine")


def test_E2_nothing_of_the_callers_settings_changes(app: Windlass, caller: Caller) -> None:
    before = caller.settings()
    caller.run(app.store.counts())
    assert caller.settings() == before
    caller.enqueue()
    assert caller.settings() == before
    with pytest.raises(ZeroDivisionError):
        caller.run(interrupted(app.store))
    assert caller.settings() == before
    with pytest.raises(NotFound):
        caller.run(app.store.one(404))
    assert caller.settings() == before
    caller.sql("SELECT 1")  # still open


def test_E2_a_cursor_the_caller_is_reading_goes_on(app: Windlass, caller: Caller) -> None:
    cursor = caller.sql("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
    seen = [caller.next(cursor)]
    caller.enqueue()
    seen.append(caller.next(cursor))
    with pytest.raises(ZeroDivisionError):
        caller.run(interrupted(app.store))
    seen += [caller.next(cursor), caller.next(cursor)]
    assert seen == [(1,), (2,), (3,), None]
    caller.commit()
    assert stored(app) == [1]


@pytest.mark.parametrize("kind", [kind for kind in AWAITED if "idle" in kind])
def test_E11_tasks_that_share_a_connection_do_not_mix(
    app: Windlass, open_caller: Callable[[str], Caller], kind: str
) -> None:
    """Operations of several asyncio tasks on one connection: each whole, one after another."""
    caller = open_caller(kind)

    async def together() -> list[Any]:
        ops: list[Op[Any]] = []
        for number in range(10):
            ops.append(app.store.enqueue([new(f"t{number}"), new(f"t{number}")]))
            ops.append(interrupted(app.store))
        running = (app.arun(op, on=caller.raw) for op in ops)
        return await asyncio.gather(*running, return_exceptions=True)

    answers = caller.wait(together())
    assert [type(answer) for answer in answers[1::2]] == [ZeroDivisionError] * 10
    caller.commit()
    assert stored(app) == list(range(1, 21))
    for first, second in answers[::2]:
        assert (first.record.task, first.record.id + 1) == (second.record.task, second.record.id)


# ---- E12: a handle is of one job


def test_E12_the_handle_of_a_job_rolled_back_never_shows_another(
    app: Windlass, caller: Caller, clock: Clock
) -> None:
    caller.begin()
    (record,) = caller.enqueue()
    handle: Job[Any] = Job(app, record)
    caller.rollback()
    for method in ("refresh", "cancel", "retry", "result"):
        with pytest.raises(NotFound):
            caller.call(method, of=handle)
    caller.rollback()
    clock.advance(0.001)
    ((other, _),) = app.run(app.store.enqueue([new("other")]))
    assert other.id == handle.id
    for method in ("refresh", "cancel", "retry", "result"):
        with pytest.raises(NotFound, match=f"job {other.id} is gone"):
            caller.call(method, of=handle)
    assert app.job(other.id).state is State.PENDING
    assert (handle.task, handle.state) == ("a", "pending"), "a failed refresh changes nothing"


def test_E12_the_handle_of_a_job_rolled_back_is_no_blocker(
    app: Windlass, caller: Caller, clock: Clock
) -> None:
    @app.task
    def waiting() -> None: ...

    caller.begin()
    (record,) = caller.enqueue()
    caller.rollback()
    clock.advance(0.001)
    app.run(app.store.enqueue([new("other")]))
    call = waiting.using(after=[Job(app, record)]).call()
    with pytest.raises(BlockerError, match="does not exist"):
        caller.call("enqueue_many", [call])
    caller.rollback()
    assert stored(app) == [1]


# ---- E13: everything takes on=


def takes_on() -> set[str]:
    """Every method of the app that takes a connection, by its blocking name."""
    return {
        name
        for name, method in inspect.getmembers(Windlass, inspect.isfunction)
        if not name.startswith("_")
        and not inspect.iscoroutinefunction(method)
        and "on" in inspect.signature(method).parameters
        and name != "run"  # the runner itself: `caller.run` is it
    }


def standing(app: Windlass) -> tuple[Any, ...]:
    """All that others see."""
    return (
        [job.record for job in app.jobs()],
        [(chain.id, chain.state) for chain in app.chains()],
        app.counts(),
        app.paused(),
    )


def test_E13_every_operation_belongs_to_the_callers_transaction(
    app: Windlass, store: Store, caller: Caller, clock: Clock
) -> None:
    @app.task
    def a() -> None: ...

    def before() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new(), new(), new()])
        yield from store.finish([failed(held) for held in (yield from claim(store, 3))])
        yield from store.enqueue([new(delay=60), new(), new(), new(), new(after=[6])])
        yield from store.pause("shut")

    caller.run(compose("before", before))
    caller.commit()
    seen_before = standing(app)
    call = caller.call
    caller.begin()

    (made,) = call("enqueue_many", [a.using(key="k").call()])
    assert (made.id, made.created) == (9, True)
    assert call("run_now", 4).state is State.PENDING
    assert call("cancel", 5).state is State.CANCELLED
    assert call("fail", 6, "no").error == "no"
    assert call("job", 8).state is State.FAILED
    assert call("retry", 6).state is State.PENDING
    assert call("complete", 7, None).state is State.COMPLETED
    assert call("chain", 7).state == "completed"
    assert call("delete", 1) == [1]
    assert call("retry_many", state="failed", task="a", until=None) == 2
    assert call("cancel_many", label="none") == 0
    assert [blocker.chain_id for blocker in call("blockers", 8)] == [6]
    assert [dependent.job_id for dependent in call("dependents", 6)] == [8]
    assert [attempt.outcome for attempt in call("attempts", 2)] == ["failed"]
    assert [job.id for job in call("jobs", state="cancelled")] == [5]
    assert [chain.id for chain in call("chains", state="completed")] == [7]
    assert call("counts")["default"][State.PENDING] == 5
    call("pause", "late")
    call("resume", "shut")
    assert call("paused") == ["late"]
    assert [worker.name for worker in call("workers")] == ["w1"]
    clock.advance(40 * 24 * 3600)
    assert call("prune") == 2
    handle = app.job(4)
    assert call("refresh", of=handle).state is State.PENDING
    assert call("cancel", of=handle).state is State.CANCELLED
    assert call("retry", of=handle).state is State.PENDING
    assert call("complete", 4).id == 4
    assert call("result", of=handle) is None

    assert caller.called == takes_on()
    assert caller.in_transaction
    assert standing(app) == seen_before, "nobody else sees any of it"
    caller.rollback()
    assert standing(app) == seen_before, "and it never was"


# ---- E14: first use inside an open transaction


def test_E14_the_first_use_may_be_inside_the_callers_transaction(
    caller: Caller, make_app: Callable[..., Windlass]
) -> None:
    caller.begin()
    caller.sql("INSERT INTO mine DEFAULT VALUES")  # nobody else can write now
    fresh = make_app(lock_timeout=0)
    ((record, _),) = caller.run(fresh.store.enqueue([new()]), fresh)
    assert caller.run(fresh.store.one(record.id), fresh).state is State.PENDING
    assert caller.in_transaction
    caller.commit()
    assert stored(fresh) == [record.id]
