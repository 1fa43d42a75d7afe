"""The database is away, busy, or breaks off: nothing is lost and nobody is blamed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate, heard, outcomes
from tests.worker.outage import TERMINATE, away
from towline import State, StoreUnavailable, Towline, context

pytestmark = pytest.mark.each_engine


@pytest.fixture
def app(make_app: Callable[..., Towline]) -> Towline:
    """An app that does not wait long for the writer."""
    return make_app(lock_timeout=0.2)


def back(app: Towline) -> None:
    """Wait until this process reaches the database again: connecting has a back-off of its own."""

    def reached() -> bool:
        try:
            app.paused()
        except StoreUnavailable:
            return False
        return True

    until(reached)


def complaints(trouble: list[logging.LogRecord]) -> list[str]:
    return [r.getMessage() for r in trouble if "cannot go on just now" in r.getMessage()]


def test_a_completion_that_cannot_be_written_is_kept(
    app: Towline, database: Database, trouble: list[logging.LogRecord]
) -> None:
    """O5, W3: written when the database is back, as the first attempt's; the handler ran once."""
    gate = Gate()
    ran = []

    @app.task
    def blocking() -> str:
        ran.append(1)
        gate.enter()
        return "thread"

    @app.task
    async def awaiting() -> str:
        ran.append(1)
        await asyncio.to_thread(gate.enter)
        return "loop"

    jobs = [blocking.enqueue(), awaiting.enqueue()]  # beforehand: nobody else writes yet
    with app.worker():
        gate.wait_inside(2)
        with away(database):
            gate.open()
            until(lambda: complaints(trouble))
        back(app)
        assert [job.result(LIMIT) for job in jobs] == ["thread", "loop"]
    assert len(ran) == 2
    assert [outcomes(app, job.id) for job in jobs] == [["completed"]] * 2
    assert not [record for record in trouble if record.exc_info]


def test_O9_progress_that_cannot_be_written_is_kept(
    app: Towline, database: Database, trouble: list[logging.LogRecord]
) -> None:
    """Its handler says it once: it is seen when the database is back, while that runs."""
    begin, end = Gate(), Gate()

    @app.task
    def work() -> None:
        begin.enter()
        context().progress(0.5, "half")
        end.enter()

    job = work.enqueue()
    with app.worker():
        begin.wait_inside()
        with away(database):
            begin.open()
            end.wait_inside()
            until(lambda: complaints(trouble))
        back(app)
        seen = until(lambda: job.refresh().progress)
        assert (seen.fraction, seen.text) == (0.5, "half")
        end.open()
        job.result(LIMIT)


def test_O6_a_timeout_comes_though_the_lease_cannot_be_renewed(
    app: Towline, database: Database, trouble: list[logging.LogRecord]
) -> None:
    gate = Gate()
    stopped = threading.Event()

    @app.task(timeout=3, max_attempts=1)
    def work() -> None:
        gate.pass_by()
        if context().stop.wait(LIMIT):
            stopped.set()

    job = work.enqueue()
    with app.worker(lease=1):
        gate.wait_inside()
        with away(database):
            until(lambda: complaints(trouble))
            heard(stopped)
        back(app)
        until(lambda: not job.refresh().state.open)
    assert outcomes(app, job.id) == ["timeout"]


def test_a_worker_that_begins_while_the_database_is_away(
    app: Towline, database: Database, trouble: list[logging.LogRecord]
) -> None:
    """W3: it registers when it can, and says so only now and then."""

    @app.task
    def work() -> str:
        return "done"

    job = work.enqueue()
    with away(database):
        worker = app.worker().start()
        until(lambda: complaints(trouble))
    back(app)
    assert job.result(LIMIT) == "done"
    worker.stop()
    assert app.workers() == []


def test_a_worker_can_be_stopped_while_the_database_is_away(
    app: Towline, database: Database, trouble: list[logging.LogRecord]
) -> None:
    """W1, W3: one that never registered ends at once."""
    with away(database):
        worker = app.worker().start()
        until(lambda: complaints(trouble))
        worker.stop()
    assert not worker.running


def test_W1_a_second_stop_does_not_wait_for_the_database(
    app: Towline, database: Database, trouble: list[logging.LogRecord]
) -> None:
    gate = Gate()
    writing = threading.Event()

    @app.task
    def work() -> None:
        gate.enter()

    job = work.enqueue()
    worker = app.worker(grace=LIMIT).start()
    write_rest = worker.pump._write_rest

    def noted(end: float) -> None:
        writing.set()
        write_rest(end)

    worker.pump._write_rest = noted  # type: ignore[method-assign]
    gate.wait_inside()
    with away(database):
        gate.open()
        until(lambda: complaints(trouble))
        worker.stop(wait=False)
        heard(writing)
        worker.stop(now=True)
        assert not worker.running
    assert worker.pump.unwritten == 1
    assert app.job(job.id).state is State.RUNNING  # until its lease ends


def test_connections_are_cut_again_and_again(
    app: Towline, postgres: Database, trouble: list[logging.LogRecord]
) -> None:
    """P1, W3, O5: every job ends, each in its first attempt or one that was handed back."""

    @app.task
    def blocking(number: int) -> int:
        return number

    @app.task
    async def awaiting(number: int) -> int:
        await asyncio.sleep(0.001)
        return number

    calls = [task.call(number) for number in range(150) for task in (blocking, awaiting)]
    jobs = app.enqueue_many(calls)
    with app.worker(concurrency=4, lease=5):
        for _ in range(10):
            postgres.rows(TERMINATE)
            threading.Event().wait(0.03)
        until(lambda: not app.jobs(state=State.PENDING, limit=1))
        until(lambda: not app.jobs(state=State.RUNNING, limit=1))
    for job in jobs:
        assert set(outcomes(app, job.id)) <= {"completed", "released"}
        assert job.refresh().state is State.COMPLETED


def test_a_writer_that_is_busy_again_and_again(
    app: Towline, sqlite: Database, trouble: list[logging.LogRecord]
) -> None:
    """Q1, W3, O5: the application holds the writer longer than we wait for it."""

    @app.task
    def work(number: int) -> int:
        return number

    jobs = app.enqueue_many([work.call(number) for number in range(300)])
    with app.worker(concurrency=4):
        for _ in range(5):
            with away(sqlite):
                threading.Event().wait(0.25)
            threading.Event().wait(0.01)
        assert [job.result(LIMIT) for job in jobs] == list(range(300))
    assert {tuple(outcomes(app, job.id)) for job in jobs} == {("completed",)}


def test_no_transaction_is_open_while_a_handler_runs(
    make_app: Callable[..., Towline], database: Database
) -> None:
    """P4: nobody waits for a handler."""
    app = make_app()
    gate = Gate()

    @app.task
    def blocking() -> None:
        gate.enter()

    @app.task
    async def awaiting() -> None:
        await asyncio.to_thread(gate.enter)

    with app.worker():
        jobs = [blocking.enqueue(), awaiting.enqueue()]
        gate.wait_inside(2)
        if database.engine == "sqlite":
            with closing(database.connect(isolation_level=None, timeout=LIMIT)) as other:
                other.execute("BEGIN IMMEDIATE")
                other.execute("INSERT INTO mine (id) VALUES (1)")
                other.execute("COMMIT")
        else:
            until(lambda: _idle(database))  # between two turns; one held for a handler never is
        gate.open()
        for job in jobs:
            job.result(LIMIT)


def _idle(database: Database) -> bool:
    states: list[tuple[Any, ...]] = database.rows(
        "SELECT state FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    return {state for (state,) in states} == {"idle"}


def test_a_worker_that_lost_its_registration_registers_again(
    make_app: Callable[..., Towline], database: Database, trouble: list[logging.LogRecord]
) -> None:
    """L3, L10, W3: what it ran was taken over; it is told, and goes on with new work."""
    app = make_app()
    gate = Gate()

    @app.task
    def work(wait: bool) -> str:
        if wait:
            gate.enter()
        return "done"

    with app.worker(name="w1", lease=1):
        first = work.enqueue(True)
        gate.wait_inside()
        (row,) = app.workers()
        # A sweep passes over a worker whose row is held just then, by a turn or a renewal.
        until(lambda: app.runner.run(app.runner.store.sweep(gone=[row.id])))
        assert outcomes(app, first.id) == ["lost"]
        until(lambda: [w.id for w in app.workers()] not in ([], [row.id]))
        gate.open()
        assert work.enqueue(False).result(LIMIT) == "done"
    assert outcomes(app, first.id) == ["lost"]
    assert first.refresh().state is State.SCHEDULED
    assert any("had lost its lease" in record.getMessage() for record in trouble)
