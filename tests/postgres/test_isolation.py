"""Callers' transactions at REPEATABLE READ and SERIALIZABLE: one snapshot for all statements.

B2, B3, R3, O1, finding P1: whoever ends, retries or deletes a chain must see an edge that was
committed before he got the chain's lock. Such a transaction cannot, and the server does not tell
it: so it is refused. Enqueueing and reading go on working.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel

from tests.kit import Clock, claim, completed, continued, failed, new, register
from tests.postgres.conftest import on_newest
from towline import State, Towline
from towline.errors import WrongIsolation
from towline.model import Policy
from towline.operation import Op
from towline.records import Claimed
from towline.store.listing import JobFilter
from towline.store.retention import KeepFor

OLD = (IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE)
Connect = Callable[..., psycopg.Connection[Any]]
Act = Callable[[Towline, Claimed, object], object]

# What ends, opens again or deletes the chain of a running job, by its name.
ENDING: dict[str, Act] = {
    "cancel": lambda app, job, on: app.cancel(job.job_id, on=on),
    "complete": lambda app, job, on: app.complete(job.job_id, 1, on=on),
    "continue": lambda app, job, on: app.runner.run(
        app.runner.store.complete(job.job_id, None, new("next")), on
    ),
    "fail": lambda app, job, on: app.fail(job.job_id, "no", on=on),
    "delete": lambda app, job, on: app.runner.run(app.runner.store.delete([job.chain_id]), on),
    "cancel many": lambda app, job, on: app.runner.run(
        app.runner.store.bulk("cancel", JobFilter(task="a"), False, None, 10), on
    ),
    "finish": lambda app, job, on: app.runner.run(app.runner.store.finish([completed(job)]), on),
    "finish failed": lambda app, job, on: app.runner.run(
        app.runner.store.finish([failed(job)]), on
    ),
    "finish continued": lambda app, job, on: app.runner.run(
        app.runner.store.finish([continued(job, new("next"))]), on
    ),
}


def one_running(app: Towline) -> Claimed:
    app.runner.run(app.runner.store.enqueue([new()]))
    worker = app.runner.run(Op("register", lambda: register(app.runner.store)))
    (held,) = app.runner.run(Op("claim", lambda: claim(app.runner.store, 1, worker)))
    return held


def opened(connect: Connect, level: IsolationLevel) -> Any:
    """A transaction of that level that has looked at something: it has its snapshot."""
    connection = connect()
    connection.isolation_level = level
    connection.execute("SELECT count(*) FROM towline_job")
    return connection


@on_newest
@pytest.mark.parametrize("level", OLD)
@pytest.mark.parametrize("act", ENDING.values(), ids=ENDING)
def test_P1_what_cannot_be_ended_rightly_is_refused_and_the_transaction_stays_usable(
    app: Towline, connect: Connect, act: Act, level: IsolationLevel
) -> None:
    held = one_running(app)
    connection = opened(connect, level)
    ((dependent, _),) = app.runner.run(app.runner.store.enqueue([new("d", after=[held.chain_id])]))
    with pytest.raises(WrongIsolation, match=r"READ COMMITTED.*without on="):
        act(app, held, connection)
    connection.execute("INSERT INTO mine (id) VALUES (1)")
    connection.commit()
    assert app.job(held.job_id).state is State.RUNNING
    assert app.job(dependent.id).state is State.BLOCKED
    app.runner.run(app.runner.store.finish([completed(held)]))
    assert app.job(dependent.id).state is State.PENDING


@on_newest
def test_P1_nobody_waits_for_ever_whatever_a_caller_with_an_old_snapshot_did(
    app: Towline, connect: Connect
) -> None:
    held = one_running(app)
    connection = opened(connect, IsolationLevel.REPEATABLE_READ)
    ((dependent, _),) = app.runner.run(app.runner.store.enqueue([new("d", after=[held.chain_id])]))
    try:
        app.complete(held.job_id, 1, on=connection)
        connection.commit()
    except WrongIsolation:
        connection.rollback()
        app.complete(held.job_id, 1)
    assert app.job(dependent.id).state is State.PENDING


@on_newest
@pytest.mark.parametrize("level", OLD)
@pytest.mark.parametrize("many", [False, True])
def test_P1_a_retry_that_would_not_see_what_was_failed_since_is_refused(
    app: Towline, connect: Connect, many: bool, level: IsolationLevel
) -> None:
    held = one_running(app)
    app.fail(held.job_id, "no")
    connection = opened(connect, level)
    ((dependent, _),) = app.runner.run(app.runner.store.enqueue([new("d", after=[held.chain_id])]))
    op: Op[Any] = app.runner.store.retry(held.job_id)
    if many:
        op = app.runner.store.bulk("retry", JobFilter(task="a"), False, None, 10)
    with pytest.raises(WrongIsolation):
        app.runner.run(op, connection)
    connection.rollback()
    app.retry(held.job_id)
    assert app.job(dependent.id).state is State.BLOCKED


@on_newest
@pytest.mark.parametrize("level", OLD)
def test_P1_pruning_with_an_old_snapshot_is_refused(
    app: Towline, connect: Connect, clock: Clock, level: IsolationLevel
) -> None:
    held = one_running(app)
    app.complete(held.job_id, 1)
    clock.advance(10)
    connection = opened(connect, level)
    app.runner.run(app.runner.store.enqueue([new("d", after=[held.chain_id])]))
    with pytest.raises(WrongIsolation):
        app.runner.run(app.runner.store.prune(KeepFor(1, 1, 1)), connection)
    connection.rollback()
    assert app.chain(held.chain_id).state == "completed"


@on_newest
@pytest.mark.parametrize("level", list(IsolationLevel))
def test_P1_enqueueing_reading_and_running_now_work_at_every_level(
    app: Towline, connect: Connect, level: IsolationLevel
) -> None:
    held = one_running(app)
    app.runner.run(app.runner.store.enqueue([new("k", key="one", delay=3_600_000_000)]))
    ((bad, _),) = app.runner.run(app.runner.store.enqueue([new("bad")]))
    app.fail(bad.id, "no")
    connection = opened(connect, level)
    store = app.runner.store
    ((behind, _),) = app.runner.run(store.enqueue([new("d", after=[held.chain_id])]), connection)
    ((same, created),) = app.runner.run(store.enqueue([new("k", key="one")]), connection)
    ((late, _),) = app.runner.run(
        store.enqueue([new("k", key="one", on_conflict="replace", arguments='{"n": 2}')]),
        connection,
    )
    ((other, _),) = app.runner.run(
        store.enqueue([new("k", key="two", delay=3_600_000_000)]), connection
    )
    ((doomed, _),) = app.runner.run(store.enqueue([new("x", after=[bad.id])]), connection)
    ((last, _),) = app.runner.run(store.enqueue([new("x", after=[doomed.id])]), connection)
    assert app.run_now(other.id, on=connection).state is State.PENDING
    app.pause("slow", on=connection)
    app.resume("slow", on=connection)
    assert len(app.jobs(on=connection)) == 7
    assert app.runner.run(store.still_running(held), connection)
    assert app.runner.run(store.bulk("cancel", JobFilter(), True, None, 10), connection).number == 4
    connection.commit()
    assert (same.id, created) == (late.id, False)
    assert app.job(late.id).state is State.PENDING
    assert app.job(last.id).state is State.FAILED
    app.runner.run(store.finish([completed(held)]))
    assert app.job(behind.id).state is State.PENDING


@on_newest
@pytest.mark.parametrize("level", OLD)
def test_P1_waiting_for_a_chain_that_ended_since_the_snapshot_is_the_servers_refusal(
    app: Towline, connect: Connect, level: IsolationLevel
) -> None:
    """The other side of the meeting: the end left a new version of the chain's row."""
    held = one_running(app)
    connection = opened(connect, level)
    app.runner.run(app.runner.store.finish([completed(held)]))
    with pytest.raises(psycopg.errors.SerializationFailure):
        app.runner.run(app.runner.store.enqueue([new("d", after=[held.chain_id])]), connection)
    connection.rollback()


@on_newest
@pytest.mark.parametrize("level", OLD)
def test_P1_on_an_idle_autocommitting_connection_the_transaction_is_ours_and_its_level_too(
    app: Towline, url: str, connect: Connect, level: IsolationLevel
) -> None:
    held = one_running(app)
    app.runner.run(app.runner.store.enqueue([new("d", after=[held.chain_id])]))
    name = level.name.lower().replace("_", " ")
    options = f"-c default_transaction_isolation={name}".replace(" ", "\\ ").replace("-c\\ ", "-c ")
    connection = connect(autocommit=True, options=options)
    assert connection.execute("SHOW transaction_isolation").fetchone() == (name,)
    app.complete(held.job_id, 1, on=connection)
    assert [job.state for job in app.jobs(newest=False)] == [State.COMPLETED, State.PENDING]


@on_newest
@pytest.mark.parametrize("level", OLD)
def test_P1_a_replaced_job_that_would_fail_with_its_blocker_is_refused(
    app: Towline, connect: Connect, level: IsolationLevel
) -> None:
    store = app.runner.store
    ((broken, _),) = app.runner.run(store.enqueue([new()]))
    app.fail(broken.id, "no")
    waiting = new("t", key="k", after=[broken.id], policy=Policy.WAIT)
    ((waits, _),) = app.runner.run(store.enqueue([waiting]))
    connection = opened(connect, level)
    ((dependent, _),) = app.runner.run(store.enqueue([new("d", after=[waits.id])]))
    ending = new("t", key="k", on_conflict="replace", given=["policy"], policy=Policy.FAIL)
    with pytest.raises(WrongIsolation):
        app.runner.run(store.enqueue([ending]), connection)
    connection.rollback()
    app.runner.run(store.enqueue([ending]))
    assert app.job(dependent.id).state is State.FAILED
