"""What we do on a connection we were handed: E1, E2, E10 to E14, on every kind and in every state.

Where `play` commits by itself, a `caller` here decides about its own transaction.
"""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import Callable
from datetime import UTC
from typing import Any

import asyncpg
import psycopg
import psycopg2.errors
import pytest

from tests.conformance.caller import Caller
from tests.conformance.place import Place
from tests.database import Database
from tests.kit import Clock, claim, failed, new, register
from towline import Job, NotFound, State, Towline
from towline.errors import BlockerError, SchemaMissing
from towline.operation import Op, Query, Steps
from towline.store import Store


def stored(app: Towline) -> list[int]:
    """The jobs that everybody else sees."""
    return [job.id for job in app.jobs(newest=False)]


# ---- E1: with the caller's commit, or not at all


def test_E1_a_job_is_seen_exactly_when_the_caller_commits(app: Towline, caller: Caller) -> None:
    caller.begin()
    (record,) = caller.enqueue()
    assert stored(app) == []
    with pytest.raises(NotFound):
        app.job(record.id)
    caller.commit()
    assert app.job(record.id).state is State.PENDING


def test_E1_a_rollback_leaves_no_job(app: Towline, caller: Caller, database: Database) -> None:
    caller.begin()
    caller.sql("INSERT INTO mine DEFAULT VALUES")
    caller.enqueue(new(key="k"), new())
    caller.rollback()
    assert stored(app) == []
    assert database.rows("SELECT * FROM mine") == []
    ((_, created),) = app.runner.run(app.runner.store.enqueue([new(key="k")]))
    assert created, "the key went with the rollback"


def test_E1_a_savepoint_takes_its_jobs_along(
    app: Towline, caller: Caller, database: Database
) -> None:
    """Rolled back, while the outer transaction commits. The name is one we use ourselves."""
    caller.begin()
    (kept,) = caller.enqueue()
    caller.sql("SAVEPOINT towline")
    caller.sql("INSERT INTO mine DEFAULT VALUES")
    (gone,) = caller.enqueue()
    caller.sql("ROLLBACK TO towline")
    caller.sql("RELEASE towline")
    (after,) = caller.enqueue(new("b"))
    caller.commit()
    assert stored(app) == [kept.id, after.id]
    assert app.job(after.id).task == "b"
    if database.engine == "sqlite":
        assert after.id == gone.id, "the id of a job that never existed is free"


# ---- E2, E11: the table of DESIGN, cell by cell


def test_E11_an_operation_leaves_the_connection_as_tabled(app: Towline, caller: Caller) -> None:
    began = caller.kind.in_transaction
    commits = caller.kind.place is Place.AUTOCOMMIT
    assert caller.in_transaction is began

    caller.run(app.runner.store.counts())
    assert caller.in_transaction is (began or caller.begins_to_read)

    (record,) = caller.enqueue()
    assert caller.in_transaction is not commits
    assert stored(app) == ([record.id] if commits else [])

    (second,) = caller.enqueue()
    assert caller.in_transaction is not commits
    caller.commit()
    assert stored(app) == [record.id, second.id]


def interrupted(store: Store) -> Op[None]:
    """An operation that fails after it has written."""

    def steps() -> Steps[None]:
        yield from store.enqueue([new(), new(key="k")])
        raise ZeroDivisionError

    return Op("interrupted", steps)


def unknown_blocker(store: Store) -> Op[Any]:
    """A batch whose keys are taken before its last job turns out to be impossible."""
    return store.enqueue([new(key="k"), new(), new(after=[404])])


def refused(store: Store) -> Op[None]:
    """An operation whose last statement the database refuses."""

    def steps() -> Steps[None]:
        yield from store.enqueue([new(), new(key="k")])
        yield Query("same_id_twice", "INSERT INTO mine (id) SELECT 5 UNION ALL SELECT 5")()

    return Op("refused", steps)


REFUSED = (
    sqlite3.IntegrityError,
    psycopg.errors.UniqueViolation,
    psycopg2.errors.UniqueViolation,
    asyncpg.UniqueViolationError,
)


def test_E11_a_failed_operation_leaves_nothing_partial(
    app: Towline, caller: Caller, database: Database
) -> None:
    broken: list[tuple[Callable[[Store], Op[Any]], Any]] = [
        (interrupted, ZeroDivisionError), (unknown_blocker, BlockerError), (refused, REFUSED),
    ]  # fmt: skip
    for op, error in broken:
        with pytest.raises(error):
            caller.run(op(app.runner.store))
        assert caller.in_transaction is caller.kind.in_transaction, "we end what we began"
    ((record, created),) = caller.run(app.runner.store.enqueue([new(key="k")]))
    assert created, "the key was given back"
    caller.commit()
    assert stored(app) == [record.id]
    assert database.rows("SELECT count(*) FROM mine") == [("writing" in caller.kind.name,)]


def test_E11_a_failed_operation_keeps_what_the_caller_did_before(
    app: Towline, caller: Caller, database: Database
) -> None:
    caller.begin()
    caller.sql("INSERT INTO mine (id) VALUES (77)")
    caller.enqueue()
    with pytest.raises(ZeroDivisionError):
        caller.run(interrupted(app.runner.store))
    assert caller.in_transaction
    caller.enqueue(new("b"))
    caller.commit()
    assert [job.task for job in app.jobs(newest=False)] == ["a", "b"]
    assert (77,) in database.rows("SELECT id FROM mine")


def test_E3_an_error_of_the_driver_reaches_the_caller_and_undoes_only_our_part(
    app: Towline, caller: Caller, database: Database
) -> None:
    caller.begin()
    caller.sql("INSERT INTO mine (id) VALUES (77)")
    (kept,) = caller.enqueue()
    with pytest.raises(REFUSED) as caught:
        caller.run(refused(app.runner.store))
    assert caught.type in REFUSED
    assert caller.in_transaction
    ((after, created),) = caller.run(app.runner.store.enqueue([new(key="k")]))
    assert created
    caller.commit()
    assert stored(app) == [kept.id, after.id]
    assert {(77,)} <= set(database.rows("SELECT id FROM mine"))
    assert not {(5,)} & set(database.rows("SELECT id FROM mine"))


def test_E2_nothing_of_the_callers_settings_changes(app: Towline, caller: Caller) -> None:
    before = caller.settings()
    caller.run(app.runner.store.counts())
    assert caller.settings() == before
    caller.enqueue()
    assert caller.settings() == before
    with pytest.raises(ZeroDivisionError):
        caller.run(interrupted(app.runner.store))
    assert caller.settings() == before
    with pytest.raises(NotFound):
        caller.run(app.runner.store.job(404))
    assert caller.settings() == before
    caller.sql("SELECT 1")  # still open


def test_E2_nothing_set_in_the_database_for_the_session_changes(
    app: Towline, caller: Caller
) -> None:
    """Not for the rest of the caller's transaction, nor after it."""
    caller.begin()
    before = caller.session()
    caller.enqueue()
    caller.run(app.runner.store.counts())
    assert caller.session() == before
    with pytest.raises(ZeroDivisionError):
        caller.run(interrupted(app.runner.store))
    assert caller.session() == before
    caller.commit()
    assert caller.session() == before
    caller.rollback()
    caller.enqueue()
    caller.commit()
    assert caller.session() == before


def test_E2_a_cursor_the_caller_is_reading_goes_on(app: Towline, caller: Caller) -> None:
    cursor = caller.sql("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
    seen = [caller.next(cursor)]
    caller.enqueue()
    seen.append(caller.next(cursor))
    with pytest.raises(ZeroDivisionError):
        caller.run(interrupted(app.runner.store))
    seen += [caller.next(cursor), caller.next(cursor)]
    assert seen == [(1,), (2,), (3,), None]
    caller.commit()
    assert stored(app) == [1]


def test_E11_tasks_that_share_a_connection_do_not_mix(
    app: Towline, awaiting_caller: Caller
) -> None:
    """Operations of several asyncio tasks on one connection: each whole, one after another."""

    async def together() -> list[Any]:
        ops: list[Op[Any]] = []
        for number in range(10):
            ops.append(app.runner.store.enqueue([new(f"t{number}"), new(f"t{number}")]))
            ops.append(interrupted(app.runner.store))
        running = (app.runner.arun(op, on=awaiting_caller.raw) for op in ops)
        return await asyncio.gather(*running, return_exceptions=True)

    answers = awaiting_caller.wait(together())
    assert [type(answer) for answer in answers[1::2]] == [ZeroDivisionError] * 10
    awaiting_caller.commit()
    assert stored(app) == sorted(record.id for pair in answers[::2] for record, _ in pair)
    for first, second in answers[::2]:
        assert (first.record.task, first.record.id + 1) == (second.record.task, second.record.id)


# ---- E12: a handle is of one job


def test_E12_the_handle_of_a_job_rolled_back_never_shows_another(
    app: Towline, caller: Caller, clock: Clock, database: Database
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
    database.free_ids()
    ((other, _),) = app.runner.run(app.runner.store.enqueue([new("other")]))
    assert other.id == handle.id
    for method in ("refresh", "cancel", "retry", "result"):
        with pytest.raises(NotFound, match=f"job {other.id} is gone"):
            caller.call(method, of=handle)
    assert app.job(other.id).state is State.PENDING
    assert (handle.task, handle.state) == ("a", "pending"), "a failed refresh changes nothing"


def test_E12_the_handle_of_a_job_rolled_back_is_no_blocker(
    app: Towline, caller: Caller, clock: Clock, database: Database
) -> None:
    @app.task
    def waiting() -> None: ...

    caller.begin()
    (record,) = caller.enqueue()
    caller.rollback()
    clock.advance(0.001)
    database.free_ids()
    ((other, _),) = app.runner.run(app.runner.store.enqueue([new("other")]))
    assert other.id == record.id
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
        for name, method in inspect.getmembers(Towline, inspect.isfunction)
        if not name.startswith("_")
        and not inspect.iscoroutinefunction(method)
        and "on" in inspect.signature(method).parameters
        and name != "run"  # the runner itself: `caller.run` is it
    }


def standing(app: Towline) -> tuple[Any, ...]:
    """All that others see."""
    return (
        [job.record for job in app.jobs()],
        [(chain.id, chain.state) for chain in app.chains()],
        app.counts(),
        app.paused(),
        [schedule.record for schedule in app.schedules()],
        app.limits(),
    )


def test_E13_every_operation_belongs_to_the_callers_transaction(
    app: Towline, store: Store, caller: Caller, clock: Clock
) -> None:
    @app.task
    def a() -> None: ...

    def before() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new(), new(), new()])
        yield from store.finish([failed(held) for held in (yield from claim(store, 3))])
        yield from store.enqueue([new(delay=60), new(), new(), new(), new(after=[6])])
        yield from store.pause("shut")

    caller.run(Op("before", before))
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
    assert call("delete_many", label="none") == 0
    assert call("run_now_many", label="none") == 0
    assert list(call("audit", job=5)) == []
    assert call("why", 5).startswith("it was cancelled ")
    assert [blocker.chain_id for blocker in call("blockers", 8)] == [6]
    assert [dependent.job_id for dependent in call("dependents", 6)] == [8]
    assert [attempt.outcome for attempt in call("attempts", 2)] == ["failed"]
    assert [job.id for job in call("jobs", state="cancelled")] == [5]
    assert [chain.id for chain in call("chains", state="completed")] == [7]
    assert call("counts")["default"][State.PENDING] == 5
    assert call("counts", by="task")["a"][State.COMPLETED] == 1
    assert [job.id for job in call("jobs", roots=True, chain_task="a", state="cancelled")] == [5]
    assert list(call("jobs", worker="nobody")) == []
    assert {"cancelled", "completed"} <= {ended.outcome for ended in call("stats")}
    call("pause", "late")
    call("resume", "shut")
    assert call("paused") == ["late"]
    assert [worker.name for worker in call("workers")] == ["w1"]
    assert call("parked") == {}
    assert call("stats") != []
    assert call("target", 4).id == 4
    assert call("now").tzinfo is UTC
    schedule = call("set_schedule", "nightly", a.call(), "@daily")
    assert call("schedule", "nightly").name == "nightly"
    assert [each.name for each in call("schedules")] == ["nightly"]
    assert call("pause", of=schedule).paused
    assert not call("resume", of=schedule).paused
    assert call("run", of=schedule).schedule == "nightly"
    assert call("refresh", of=schedule).last_job == 10
    call("delete", of=schedule)
    call("set_schedule", "nightly", a.call(), "@daily")
    call("set_limit", "mail", lane="*", concurrency=2)
    assert [limit.lane for limit in call("limits")] == ["*"]
    assert list(call("lanes", "mail")) == []
    clock.advance(40 * 24 * 3600)
    assert call("prune") == 2
    handle = app.job(4)
    assert call("refresh", of=handle).state is State.PENDING
    assert call("cancel", of=handle).state is State.CANCELLED
    assert call("retry", of=handle).state is State.PENDING
    assert call("complete", 4).id == 4
    assert call("result", of=handle) is None
    again = call("rerun", 4)
    assert (again.created, again.state) == (True, State.PENDING)
    assert call("change", again.id, priority=2).priority == 2
    assert call("wait", [handle, again], return_when="first") == [handle]

    group = call("enqueue_group", [a.call(), a.call()])
    assert (group.total, call("group", group.id).ended) == (2, 0)
    assert call("refresh", of=group).state is State.BLOCKED
    assert call("failed", of=group) == 0
    assert call("cancel", of=group).state is State.CANCELLED

    assert caller.called == takes_on()
    assert caller.in_transaction
    assert standing(app) == seen_before, "nobody else sees any of it"
    caller.rollback()
    assert standing(app) == seen_before, "and it never was"


# ---- E14: first use inside an open transaction


def test_E14_the_first_use_may_be_inside_the_callers_transaction(
    caller: Caller, make_app: Callable[..., Towline]
) -> None:
    caller.begin()
    caller.sql("INSERT INTO mine DEFAULT VALUES")  # nobody else can write now
    fresh = make_app(lock_timeout=0)
    ((record, _),) = caller.run(fresh.runner.store.enqueue([new()]), fresh)
    assert caller.run(fresh.runner.store.job(record.id), fresh).state is State.PENDING
    assert caller.in_transaction
    caller.commit()
    assert stored(fresh) == [record.id]


def test_E14_without_tables_the_callers_transaction_goes_on(
    caller: Caller, make_app: Callable[..., Towline], database: Database
) -> None:
    """Looking for tables that are not there must not be an error of the caller's transaction."""
    fresh = make_app(prefix="other_")
    caller.begin()
    caller.sql("INSERT INTO mine (id) VALUES (77)")
    ops: list[Op[Any]] = [fresh.runner.store.enqueue([new()]), fresh.runner.store.counts()]
    for op in ops:
        with pytest.raises(SchemaMissing, match=r"app.migrate\(\)"):
            caller.run(op, fresh)
        assert caller.in_transaction
    caller.commit()
    assert (77,) in database.rows("SELECT id FROM mine")
    # With autocommit=False sqlite3 begins the next before commit() returns: it is never idle, and
    # the tables are made beforehand.
    never_idle = "autocommit=False" in caller.kind.name
    assert caller.in_transaction is never_idle
    if never_idle:
        fresh.migrate()
    ((record, _),) = caller.run(fresh.runner.store.enqueue([new()]), fresh)
    caller.commit()
    assert stored(fresh) == [record.id]
