"""Q7 and Q9: the write-ahead log stays short, safely, and nobody waits to read."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import new, rows
from tests.sqlite.conftest import Trace
from tests.sqlite.processes import Held, Pause, engine_of
from towline import Towline
from towline.errors import ReadOnlyDatabase
from towline.model import State
from towline.operation import Op, Steps
from towline.sqlite import engine, writer
from towline.sqlite import log as logs
from towline.sqlite.log import FRAME, Log
from towline.task import Task

PAGES = 100
LIMIT = PAGES * FRAME
KEPT = 20 * FRAME
PASSIVE = "PRAGMA wal_checkpoint(PASSIVE)"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs count as long from few pages on, and are looked at often. Ask for it before `app`."""
    monkeypatch.setattr(writer, "LOOK_COMMITS", 1)
    monkeypatch.setattr(Log.__init__, "__defaults__", (PAGES,))
    monkeypatch.setattr(engine, "KEPT", KEPT)


@pytest.fixture
def copies(short: None, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each checkpoint whether it has copied all of the log."""
    copies: list[bool] = []
    real = Log.copy

    def copy(log: Log) -> bool:
        copies.append(real(log))
        return copies[-1]

    monkeypatch.setattr(Log, "copy", copy)
    return copies


@pytest.fixture
def reader(database: Path) -> Iterator[sqlite3.Connection]:
    """A connection outside Towline that can hold a snapshot."""
    connection = sqlite3.connect(database, isolation_level=None)
    yield connection
    connection.close()


def look(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM towline_job").fetchall()


def log(database: Path) -> int:
    return Path(f"{database}-wal").stat().st_size


def enqueue(app: Towline, times: int) -> None:
    for _ in range(times):
        app.runner.run(app.runner.store.enqueue([new()]))


def test_Q9_no_connection_of_ours_checkpoints_by_itself(
    copies: list[bool], trace: Trace, app: Towline, task: Task[[int], int], database: Path
) -> None:
    task.enqueue(1)
    app.counts()
    Held(app.counts).result()
    enqueue(app, 100)
    assert copies  # each on a second connection
    told = [statements for _, statements in trace.connections]
    assert all("PRAGMA wal_autocheckpoint = 0" in statements for statements in told)
    for kind in ("BEGIN IMMEDIATE", "PRAGMA query_only = ON", PASSIVE):
        assert kind in trace.statements


def test_Q7_the_log_stays_bounded_when_only_enqueuers_run(
    copies: list[bool], app: Towline, database: Path
) -> None:
    sizes = []
    for _ in range(100):
        enqueue(app, 5)
        sizes.append(log(database))
    # One commit goes past the limit, and the next one starts the log anew and cuts it.
    assert max(sizes) < LIMIT + 40 * FRAME
    assert min(sizes[50:]) <= KEPT
    assert sum(copies) >= 5
    assert rows(database, "SELECT count(*) FROM towline_job") == [(500,)]
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]


def test_Q7_one_large_commit_does_not_leave_a_large_log(
    copies: list[bool], app: Towline, database: Path
) -> None:
    app.runner.run(app.runner.store.enqueue([new() for _ in range(3000)]))
    assert log(database) > LIMIT
    assert sum(copies) == 1
    enqueue(app, 1)
    assert log(database) <= KEPT


def test_Q9_the_writer_is_held_while_the_log_is_copied(
    copies: list[bool], app: Towline, database: Path, reader: sqlite3.Connection
) -> None:
    """Nobody can start the log anew meanwhile, Towline or not."""
    shut: list[bool] = []

    class Watched:
        """The connection that copies; looks around before it does."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self.connection = connection
            self.close = connection.close

        def execute(self, text: str) -> sqlite3.Cursor:
            assert text == PASSIVE
            reader.execute("PRAGMA busy_timeout = 0")
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                reader.execute("BEGIN IMMEDIATE")
            shut.append(True)
            return self.connection.execute(text)

    enqueue(app, 1)
    subject: Any = engine_of(app)._writer
    subject._log._connect = lambda: Watched(engine_of(app).connect())
    enqueue(app, 100)
    assert not subject.connection.in_transaction
    assert len(shut) == len(copies) > 0
    reader.execute("BEGIN IMMEDIATE")  # and free again
    reader.execute("ROLLBACK")


def test_Q9_only_passive_checkpoints_run_and_each_inside_the_guard(
    copies: list[bool], trace: Trace, app: Towline
) -> None:
    enqueue(app, 100)
    told = [text for text in trace.statements if "checkpoint" in text]
    assert set(told) == {"PRAGMA wal_autocheckpoint = 0", PASSIVE}
    assert told.count(PASSIVE) == len(copies)


def test_Q7_a_long_reader_only_puts_the_checkpoint_off(
    copies: list[bool],
    app: Towline,
    database: Path,
    reader: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "PINNED", 0.0)
    look(reader)
    enqueue(app, 100)
    assert sum(copies) == 0
    assert log(database) > LIMIT
    assert reader.execute("SELECT count(*) FROM towline_job").fetchone() == (0,)
    reader.execute("COMMIT")
    enqueue(app, 2)
    assert sum(copies) == 1
    assert log(database) <= KEPT
    assert rows(database, "SELECT count(*) FROM towline_job") == [(102,)]


def test_Q7_while_a_reader_pins_the_log_it_is_not_tried_at_every_commit(
    copies: list[bool], trace: Trace, app: Towline, database: Path, reader: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(logs, "PINNED", 1000.0)
    look(reader)
    enqueue(app, 100)
    assert trace.count(PASSIVE) == 1
    assert sum(copies) == 0


def test_Q9_a_checkpoint_that_cannot_run_fails_no_operation(
    copies: list[bool], app: Towline, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Log, "copy", fail)
        enqueue(app, 100)
    assert rows(database, "SELECT count(*) FROM towline_job") == [(100,)]
    enqueue(app, 1)
    assert sum(copies) == 1


def test_Q9_a_second_connection_that_cannot_be_opened_fails_no_operation(
    copies: list[bool], app: Towline, database: Path
) -> None:
    subject = engine_of(app)._writer._log

    def refuse() -> sqlite3.Connection:
        raise ReadOnlyDatabase("too many open files")

    enqueue(app, 1)
    subject._connect = refuse
    enqueue(app, 100)
    assert sum(copies) == 0
    subject._connect = engine_of(app).connect
    enqueue(app, 1)
    assert sum(copies) == 1
    assert rows(database, "SELECT count(*) FROM towline_job") == [(102,)]


def test_Q7_readers_are_not_blocked_by_an_open_write_transaction(
    app: Towline, task: Task[[int], int], reader: sqlite3.Connection
) -> None:
    job = task.enqueue(1)
    reader.execute("BEGIN IMMEDIATE")
    reader.execute("DELETE FROM towline_job")
    assert job.refresh().state == "pending"
    assert [each.id for each in app.jobs()] == [job.id]
    assert app.counts()["default"][State.PENDING] == 1
    reader.execute("ROLLBACK")


def test_Q7_readers_see_what_was_there_while_ours_writes(
    app: Towline, make_app: Callable[..., Towline], task: Task[[int], int]
) -> None:
    task.enqueue(1)
    pause = Pause()

    def write() -> Steps[str]:
        yield from app.runner.store.enqueue([new()])
        return (yield from pause.op)

    slow = Held(lambda: app.runner.run(Op("write", write)))
    assert pause.inside.wait(30)
    other = make_app()
    assert [len(app.jobs()), len(other.jobs())] == [1, 1]
    pause.go.set()
    slow.result()
    assert [len(app.jobs()), len(other.jobs())] == [2, 2]


def test_Q7_a_read_inside_an_operation_cannot_deadlock(
    app: Towline, task: Task[[int], int]
) -> None:
    """It has a connection of its own and sees what is committed, also on another thread."""
    job = task.enqueue(1)
    seen: list[int] = []

    def write() -> Steps[None]:
        yield from app.runner.store.enqueue([new()])
        seen.append(len(app.jobs()))
        seen.append(len(Held(app.jobs).result()))
        seen.append(job.refresh().id)

    app.runner.run(Op("write", write))
    assert seen == [1, 1, job.id]
    assert len(app.jobs()) == 2


def test_Q7_reading_leaves_no_snapshot_behind(
    copies: list[bool], app: Towline, task: Task[[int], int], database: Path
) -> None:
    """Every thread's reader stays open; none of them pins the log."""
    stop = threading.Event()
    ready = threading.Barrier(4)

    def stay() -> None:
        app.jobs()
        ready.wait(30)
        stop.wait(30)

    readers = [Held(stay) for _ in range(3)]
    ready.wait(30)
    enqueue(app, 100)
    assert sum(copies) > 0
    assert log(database) <= LIMIT + 40 * FRAME
    stop.set()
    for held in readers:
        held.result()
