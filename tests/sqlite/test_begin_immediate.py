"""Q3: every write transaction of ours begins IMMEDIATE, seen from what SQLite is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import DAY, SECOND, Clock, completed, continued, failed, new
from tests.sqlite.conftest import Trace, add
from towline import Towline
from towline.operation import Op, Steps
from towline.store.turn import promote, unpark

WRITING = ("INSERT", "UPDATE", "DELETE", "REPLACE", "CREATE", "DROP", "ALTER", "WITH")
HARMLESS = ("SELECT", "WITH RECURSIVE", "PRAGMA", "SAVEPOINT", "RELEASE", "ROLLBACK", "--")


def everything(app: Towline, clock: Clock) -> None:
    """Call every operation that writes, on connections of ours."""
    store = app.runner.store

    def work() -> Steps[None]:
        worker = yield from store.register(
            "w", host="h", pid=1, birth=None, version="0", queues=["default"], concurrency=9,
            lease=30 * SECOND,
        )  # fmt: skip
        yield from store.enqueue([new(f"t{number}") for number in range(8)])
        held = yield from store.claim(worker, ["default"], 6)
        yield from store.progress([(held[0], 0.5, "half")])
        yield from store.finish([completed(held[0]), continued(held[1], new("next"))])
        yield from store.finish([failed(held[2]), failed(held[3], delay=SECOND)])
        yield from store.park([held[4]])
        yield from unpark(store, ["t4"], ["default"])
        yield from store.renew(worker, "w", 30 * SECOND, [(held[5].job_id, held[5].attempt)])
        yield from store.unregister(worker)

    app.runner.run(Op("work", work))
    task = app.task(add)
    job = task.using(key="k", delay=60).enqueue(1)
    task.using(key="k", on_conflict="replace", delay=90).enqueue(2)
    app.run_now(job.id)
    job.cancel()
    job.retry()
    dependent = task.using(after=[job]).enqueue(3)
    app.complete(job.id, 5)
    app.fail(dependent.id, "no")
    app.retry_many(state="failed")
    app.cancel_many(task="t7")
    app.pause("default")
    app.resume("default")
    clock.advance(60)
    app.runner.run(store.sweep())
    app.runner.run(Op("promote", lambda: promote(store)))
    app.runner.run(store.turn(9, "x", ["default"], 1))
    app.delete(dependent.id, cascade=True)
    clock.advance(40 * DAY / SECOND)
    app.prune()
    app.vacuum()
    app.counts()
    app.jobs()


def test_Q3_every_write_transaction_begins_immediate(
    trace: Trace, make_app: Callable[..., Towline], clock: Clock
) -> None:
    app = make_app(clock=clock)
    everything(app, clock)
    app.close()
    written = 0
    for _, statements in trace.connections:
        begun = ""
        reads_only = False
        for told in statements:
            text = told.strip(" ;")
            if text.startswith("BEGIN"):
                assert not begun
                begun = text
                assert reads_only or text == "BEGIN IMMEDIATE"
            elif text in ("COMMIT", "ROLLBACK"):
                begun = ""
            elif text.startswith("PRAGMA incremental_vacuum"):
                assert begun == "BEGIN IMMEDIATE"
            elif text == "PRAGMA query_only = ON":
                reads_only = True
            elif text.startswith(HARMLESS):
                pass
            else:
                assert text.startswith(WRITING), text
                assert begun == "BEGIN IMMEDIATE", text
                assert not reads_only
                written += 1
        assert not begun
    assert written > 60


def test_Q3_a_reading_connection_cannot_write(trace: Trace, app: Towline) -> None:
    app.counts()
    reader = next(c for c, told in trace.connections if "PRAGMA query_only = ON" in told)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.execute("DELETE FROM towline_job")


def test_Q3_a_stale_snapshot_cannot_occur_on_our_connections(app: Towline, database: Path) -> None:
    """A read at the start of an operation sees what others have just committed."""
    other = sqlite3.connect(database, isolation_level=None)

    def write() -> Steps[int]:
        ((first,),) = yield app.runner.store.sql.next_job_id()
        other.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        yield from app.runner.store.enqueue([new()])
        assert isinstance(first, int)
        return first

    for expected in (1, 2, 3):
        assert app.runner.run(Op("write", write)) == expected
    other.close()


def test_Q3_on_the_callers_connection_a_stale_snapshot_reaches_the_caller(
    app: Towline, database: Path
) -> None:
    """The caller has read before somebody else wrote, without BEGIN IMMEDIATE."""
    task = app.task(add)
    caller = sqlite3.connect(database, isolation_level=None)
    caller.execute("BEGIN")
    caller.execute("SELECT count(*) FROM towline_job").fetchall()
    task.enqueue(1)
    with pytest.raises(sqlite3.OperationalError) as caught:
        task.using(on=caller).enqueue(2)
    assert caught.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"
    assert caller.in_transaction
    caller.execute("ROLLBACK")
    caller.execute("BEGIN IMMEDIATE")
    assert task.using(on=caller).enqueue(2).id == 2
    caller.execute("COMMIT")
    caller.close()
