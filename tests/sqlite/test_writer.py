"""One writer per process: group commit, and what happens to the others of a group."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kit import completed, new, register, rows
from tests.sqlite.conftest import Trace
from tests.sqlite.processes import Held, Pause, engine_of
from tests.until import until
from towline import Towline
from towline.errors import BlockerError, DiskFull, WriterBusy
from towline.operation import Loss, Op, Steps
from towline.records import Enqueued
from towline.sqlite import writer as writers
from towline.sqlite.writer import GROUP, Writer
from towline.store.turn import promote
from towline.task import Task

STORED = "SELECT task FROM towline_job ORDER BY id"


class Line:
    """Operations that queue up behind one that does not end until it is let go."""

    def __init__(self, app: Towline) -> None:
        self.app = app
        self.pause = Pause()
        self.leader = Held(lambda: app.runner.run(self.pause.op))
        assert self.pause.inside.wait(30)

    def add(self, op: Op[Any]) -> Held[Any]:
        """Enter the line; operations stand in it in the order they were added."""
        length = len(waiting(self.app))
        held: Held[Any] = Held(lambda: self.app.runner.run(op))
        until(lambda: len(waiting(self.app)) == length + 1)
        return held

    def store(self, task: str) -> Held[list[Enqueued]]:
        return self.add(self.app.runner.store.enqueue([new(task)]))

    def go(self) -> None:
        self.pause.go.set()
        assert self.leader.result() == "went"


def writer(app: Towline) -> Writer:
    return engine_of(app)._writer


def waiting(app: Towline) -> list[Any]:
    return list(writer(app)._waiting)


@pytest.fixture
def line(trace: Trace, app: Towline) -> Line:
    return Line(app)


def test_Q1_operations_that_wait_for_the_writer_share_one_commit(
    trace: Trace, app: Towline, line: Line, database: Path
) -> None:
    calls = [line.store(f"t{number}") for number in range(20)]
    trace.clear()
    line.go()
    stored = [call.result()[0].record.id for call in calls]
    assert stored == list(range(1, 21))
    assert rows(database, STORED) == [(f"t{number}",) for number in range(20)]
    assert trace.count("COMMIT") == 2  # the one they waited for, and theirs


def test_Q1_a_group_is_bounded(trace: Trace, app: Towline, line: Line, database: Path) -> None:
    calls = [line.store("a") for _ in range(GROUP + 1)]
    trace.clear()
    line.go()
    for call in calls:
        call.result()
    assert trace.count("COMMIT") == 3
    assert len(rows(database, STORED)) == GROUP + 1


def test_Q1_many_threads_lose_nothing(
    trace: Trace, app: Towline, task: Task[[int], int], database: Path
) -> None:
    def enqueue(start: int) -> list[int]:
        return [task.enqueue(number).id for number in range(start, start + 50)]

    task.call(0)  # the signature is read here, not by twelve threads
    trace.clear()
    calls = [Held(partial(enqueue, number * 50)) for number in range(12)]
    ids = [id for call in calls for id in call.result()]
    assert sorted(ids) == list(range(1, 601))
    arguments = rows(database, "SELECT arguments FROM towline_job")
    assert len(set(arguments)) == 600
    assert trace.count("COMMIT") < 600


def test_one_failing_operation_of_a_group_takes_no_other_with_it(
    trace: Trace, line: Line, database: Path
) -> None:
    before = line.store("before")

    def half() -> Steps[None]:
        yield from line.app.runner.store.enqueue([new("half")])
        raise ZeroDivisionError("in the middle")

    raising = line.add(Op("half", half))
    refused = line.add(line.app.runner.store.enqueue([new("refused", after=[999])]))
    after = line.store("after")
    trace.clear()
    line.go()
    assert before.result()[0].created
    assert after.result()[0].created
    with pytest.raises(ZeroDivisionError, match="in the middle"):
        raising.result()
    with pytest.raises(BlockerError, match="999"):
        refused.result()
    assert rows(database, STORED) == [("before",), ("after",)]
    assert trace.count("COMMIT") == 2


def test_Q6_a_disk_that_fills_up_in_a_group_is_said_to_all_of_it(
    app: Towline, line: Line, database: Path
) -> None:
    small = line.store("small")
    large = line.add(app.runner.store.enqueue([new("large", arguments=f'"{"x" * 100_000}"')]))
    late = line.store("late")
    connection = writer(app).connection
    assert connection is not None
    limit_pages(connection, 1)
    line.go()
    for call in (small, large, late):
        with pytest.raises(DiskFull, match="nothing was stored"):
            call.result()
    assert rows(database, STORED) == []
    limit_pages(connection, 10_000)
    assert app.runner.run(app.runner.store.enqueue([new("again")]))[0].created


def limit_pages(connection: Any, more: int) -> None:
    """Let the file grow by so many pages, as a full disk would."""
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + more}").fetchone()


class Interrupt(BaseException):
    """As Ctrl-C would: no error of the operation."""


def test_an_interrupted_leader_gives_the_operations_of_others_back(
    trace: Trace, line: Line, database: Path
) -> None:
    interrupted = threading.Event()

    def stop() -> Steps[None]:
        yield from line.app.runner.store.enqueue([new("stopped")])
        interrupted.set()
        raise Interrupt

    # The first in line leads next and takes the others along.
    leader = line.add(Op("stop", stop))
    others = [line.store(f"t{number}") for number in range(3)]
    line.go()
    with pytest.raises(Interrupt):
        leader.result()
    assert interrupted.is_set()
    assert [call.result()[0].record.task for call in others] == ["t0", "t1", "t2"]
    assert rows(database, STORED) == [("t0",), ("t1",), ("t2",)]
    assert waiting(line.app) == []


def test_A3_an_exception_meant_for_the_leader_is_not_given_to_those_it_takes_along(
    line: Line, database: Path
) -> None:
    """The handler of a signal may raise anything, while its thread runs the operation of another:
    that one is run again, by whom it belongs to."""
    threads: list[threading.Thread] = []

    def store() -> Steps[None]:
        yield from line.app.runner.store.enqueue([new("other")])
        threads.append(threading.current_thread())
        if len(threads) == 1:
            raise TimeoutError("the time of the leader is over")

    leader = line.store("leader")
    other = line.add(Op("other", store))
    line.go()
    assert leader.result()[0].created
    other.result()
    assert threads == [leader.thread, other.thread]
    assert rows(database, STORED) == [("leader",), ("other",)]


@pytest.mark.parametrize("moment", ["commit", "checkpoint", "release"])
def test_an_interrupt_after_the_commit_runs_nothing_twice(
    line: Line, database: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The leader's caller does not learn the outcome; the others do, and theirs is stored once."""
    calls = [line.store(f"t{number}") for number in range(3)]
    subject = writer(line.app)
    monkeypatch.setattr(writers, "LOOK_COMMITS", 1)

    def once(target: Any, name: str, *, after: bool) -> None:
        """Raise the first time it is called by the group."""
        real = getattr(target, name)

        def interrupt(*args: Any) -> Any:
            if threading.current_thread() is line.leader.thread:
                return real(*args)
            monkeypatch.setattr(target, name, real)
            if after:
                real(*args)
            raise Interrupt

        monkeypatch.setattr(target, name, interrupt)

    if moment == "commit":
        once(subject, "_answer", after=False)  # what comes first after it
    elif moment == "checkpoint":
        once(subject._log, "shorten", after=False)
    else:
        once(subject._turn, "release", after=True)
    line.go()
    with pytest.raises(Interrupt):
        calls[0].result()
    assert [call.result()[0].record.task for call in calls[1:]] == ["t1", "t2"]
    assert rows(database, STORED) == [("t0",), ("t1",), ("t2",)]
    assert line.app.runner.run(line.app.runner.store.enqueue([new("next")]))[0].created


def test_a_waiter_that_is_interrupted_leaves_the_line_and_stops_nobody(
    app: Towline, line: Line, database: Path
) -> None:
    """Ctrl-C reaches the main thread while its operation waits for the writer of another."""
    behind: list[Held[list[Enqueued]]] = []

    def interrupt() -> None:
        until(lambda: len(waiting(app)) == 1)
        behind.append(line.store("behind"))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    helper = Held(interrupt)
    with pytest.raises(KeyboardInterrupt):
        app.runner.run(app.runner.store.enqueue([new("interrupted")]))
    helper.result()
    assert len(waiting(app)) == 1
    line.go()
    assert behind[0].result()[0].created
    assert app.runner.run(app.runner.store.enqueue([new("next")]))[0].created
    assert rows(database, STORED) == [("behind",), ("next",)]


def test_Q2_the_deadline_passes_in_the_line_and_leaves_nothing_queued(
    make_app: Callable[..., Towline], app: Towline, database: Path
) -> None:
    hasty = make_app(lock_timeout=0.05)
    hasty.migrate()
    line = Line(hasty)
    with pytest.raises(WriterBusy, match=r"enqueue waited 0.05 s.*operation 'slow'"):
        hasty.runner.run(hasty.runner.store.enqueue([new("late")]))
    assert waiting(hasty) == []
    line.go()
    assert rows(database, STORED) == []
    assert hasty.runner.run(hasty.runner.store.enqueue([new("next")]))[0].record.id == 1


def test_Q2_an_operation_inside_an_operation_ends_at_the_deadline(
    make_app: Callable[..., Towline],
) -> None:
    app = make_app(lock_timeout=0.05)

    def nested() -> Steps[None]:
        app.runner.run(app.runner.store.enqueue([new("inner")]))
        yield from app.runner.store.enqueue([new("outer")])

    with pytest.raises(WriterBusy, match="pass on=connection"):
        app.runner.run(Op("outer", nested))
    assert len(app.jobs()) == 0


@pytest.mark.parametrize("durable", [True, False])
def test_what_must_survive_a_power_cut_is_written_at_FULL(
    trace: Trace, make_app: Callable[..., Towline], durable: bool
) -> None:
    app = make_app(durable=durable)
    app.migrate()
    levels: list[int] = []

    def level() -> int:
        connection = writer(app).connection
        assert connection is not None
        return int(connection.execute("PRAGMA synchronous").fetchone()[0])

    worker = app.runner.run(
        Op("register", lambda: register(app.runner.store, "w"), loss=Loss.WITH_WORKERS)
    )
    levels.append(level())
    app.runner.run(app.runner.store.enqueue([new()]))
    levels.append(level())
    turn = app.runner.run(app.runner.store.turn(worker, "w", ["default"], 1))
    levels.append(level())
    app.runner.run(app.runner.store.turn(worker, "w", ["default"], 1, [completed(turn.claimed[0])]))
    levels.append(level())
    assert levels == ([1, 2, 1, 2] if durable else [1, 1, 1, 1])


def test_at_NORMAL_a_leader_never_carries_what_must_be_durable(
    trace: Trace, app: Towline, line: Line, database: Path
) -> None:
    claims = line.add(Op("promote", promote, app.runner.store, loss=Loss.WITH_WORKERS))
    calls = [line.store("a"), line.store("b")]
    trace.clear()
    line.go()
    assert claims.result() == 0
    for call in calls:
        call.result()
    at_normal = False
    commits: list[int] = []
    for statement in trace.statements:
        if statement.startswith("PRAGMA synchronous ="):
            at_normal = statement.endswith("1")
        elif statement.startswith("INSERT INTO towline_job"):
            assert not at_normal
        elif statement == "COMMIT":
            commits.append(1 if at_normal else 2)
    assert commits == [2, 1, 2]
    assert len(rows(database, STORED)) == 2
