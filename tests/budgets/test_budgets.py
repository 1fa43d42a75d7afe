"""What is done all day costs what it costs, counted and not timed: statements, pages, calls.

A budget is what was counted when it was written, and a little more where Pythons differ. Who needs
more says why, here and in design/013.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

from tests.conformance.statements import Answer, watched
from tests.database import Database, SqliteDatabase
from towline import Towline
from towline.model import Outcome
from towline.operation import Op, Statement, Steps
from towline.records import Claimed, Ending
from towline.task.batch import next_job

T = TypeVar("T")

FRAME = 4096 + 24  # bytes of a page in the log
WORKER = 77

# Statements of one plain job, and of a turn that ends plain jobs and claims as many: however many.
ENQUEUE = {"sqlite": 4, "postgres": 2}  # the second is NOTIFY, which our connections send later
TURN = {"sqlite": 9, "postgres": 6}
PER_JOB_OF_MANY = 36  # calls, ten of them for the call itself


class Counted:
    """How many statements the last operation has run, by name."""

    def __init__(self, app: Towline) -> None:
        self._app = app
        self.names: Counter[str] = Counter()

    def run(self, op: Op[T]) -> T:
        answers: list[Answer] = []
        script = watched(lambda: iter(op), answers)
        result = self._app.runner.run(Op(op.name, script, loss=op.loss))
        self.names = Counter(name for (name, _), _ in answers)
        return result


def add_task(app: Towline) -> Any:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    return double


def register(app: Towline) -> None:
    app.runner.run(
        app.runner.store.register(
            "w", host="h", pid=1, birth=None, version="0", queues=["default"], concurrency=1,
            lease=10**10, number=WORKER,
        )
    )  # fmt: skip


def completed(job: Claimed) -> Ending:
    return Ending(job, Outcome.COMPLETED, "4", started_at=job.claimed_at)


def test_S1_one_plain_job_is_few_statements(app: Towline, database: Database) -> None:
    task = add_task(app)
    counted = Counted(app)
    counted.run(app.runner.store.enqueue([task.call(2).new_job(())]))
    assert counted.names.total() == ENQUEUE[database.engine], counted.names


@pytest.mark.parametrize("number", [1, 10, 100])
def test_a_turn_is_as_many_statements_however_many_jobs_it_has(
    app: Towline, database: Database, number: int
) -> None:
    task, store = add_task(app), app.runner.store
    register(app)
    app.enqueue_many([task.call(n) for n in range(3 * number)])
    counted = Counted(app)
    first = counted.run(store.turn(WORKER, "w", ["default"], number))
    ends = [completed(job) for job in first.claimed]
    turn = counted.run(store.turn(WORKER, "w", ["default"], number, ends))
    assert len(turn.finished.accepted) == len(turn.claimed) == number
    assert counted.names.total() == TURN[database.engine], counted.names


def test_a_worker_that_is_woken_claims_by_one_statement(app: Towline, database: Database) -> None:
    """On PostgreSQL, where each is a round trip; what that leaves undone a whole turn does."""
    task, store = add_task(app), app.runner.store
    register(app)
    counted, alone = Counted(app), database.engine == "postgres"
    past = datetime.now(UTC) - timedelta(days=1)
    low, high, late, last = (
        task.using(priority=priority, expires=expires).enqueue(1).id
        for priority, expires in ((1, None), (5, None), (3, past), (0, None))
    )
    turn = counted.run(store.turn(WORKER, "w", ["default"], 1, ahead=2, alone=True))
    assert turn.alone is alone
    assert (counted.names.total() == 1) is alone, counted.names
    # A late one that is claimed alone ends when it would begin.
    taken = [high, late, low] if alone else [high, low, last]
    assert [job.job_id for job in turn.claimed] == taken
    assert turn.begun == 1
    app.pause("default")
    nothing = counted.run(store.turn(WORKER, "w", ["default"], 9, alone=True))
    assert nothing.claimed == []
    app.resume("default")
    gone = counted.run(store.turn(WORKER + 1, "w", ["default"], 9, alone=True))
    assert gone.claimed == []


def frames(path: Path) -> int:
    return (path.with_name(path.name + "-wal").stat().st_size - 32) // FRAME


def test_one_plain_job_writes_few_pages(app: Towline, database: Database, sqlite: Database) -> None:
    """Q8: a page each of the three tables and of one index, and what grows from time to time."""
    assert isinstance(database, SqliteDatabase)
    task = add_task(app)
    task.enqueue(0)
    before = frames(database.path)
    for n in range(200):
        task.enqueue(n)
    assert frames(database.path) - before <= 200 * 4.5


def reads_and_writes() -> tuple[int, int]:
    """How often this thread has called the system for either."""
    lines = Path("/proc/thread-self/io").read_text().splitlines()
    counts = dict(line.split(": ") for line in lines)
    return int(counts["syscr"]), int(counts["syscw"])


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_one_plain_job_calls_the_system_seldom(app: Towline, sqlite: Database) -> None:
    """A record is read from the lock's file; the log gets a head and a page for each of four."""
    task = add_task(app)
    task.enqueue(0)
    counts = []
    for n in range(10):
        look = reads_and_writes()
        before = reads_and_writes()
        task.enqueue(n)
        after = reads_and_writes()
        # Between two looks lies what a look itself reads.
        spent = (
            last - 2 * first + own for own, first, last in zip(look, before, after, strict=True)
        )
        counts.append(tuple(spent))
    assert min(counts) == (1, 8), counts


def test_a_turn_of_many_writes_few_pages(
    app: Towline, database: Database, sqlite: Database
) -> None:
    """Q8: jobs that end together share their pages."""
    assert isinstance(database, SqliteDatabase)
    task, store = add_task(app), app.runner.store
    register(app)
    app.enqueue_many([task.call(n) for n in range(300)])
    ends: list[Ending] = []
    before = 0
    for _ in range(3):
        before = frames(database.path)
        turn = app.runner.run(store.turn(WORKER, "w", ["default"], 100, ends))
        ends = [completed(job) for job in turn.claimed]
    assert frames(database.path) - before <= 30


class Calls:
    """Functions that are called, of Python and of C, in threads whose names begin so."""

    def __init__(self, *threads: str) -> None:
        self._threads = threads
        self.total = 0
        self.operations = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_call"):
            if not self._threads or threading.current_thread().name.startswith(self._threads):
                self.total += 1
                if event == "call" and frame.f_code is Op.__init__.__code__:
                    self.operations += 1


def test_an_enqueue_calls_few_functions(app: Towline, sqlite: Database) -> None:
    task = add_task(app)
    task.enqueue(0)
    counts = []
    for n in range(10):  # every eighth looks at the log, a late one writes its record
        calls = Calls()
        sys.setprofile(calls)
        try:
            task.enqueue(n)
        finally:
            sys.setprofile(None)
        assert calls.operations == 1
        counts.append(calls.total)
    assert min(counts) <= 125, counts


def test_a_job_in_a_worker_calls_few_functions(app: Towline, sqlite: Database) -> None:
    """In the pump and in the slots together; looks and turns are shared by many jobs."""
    task = add_task(app)
    number = 2000
    app.enqueue_many([task.call(n) for n in range(number)])
    calls = Calls("towline-")
    threading.setprofile(calls)
    try:
        app.worker(concurrency=4, drain=True).run()
    finally:
        threading.setprofile(None)
    assert len(app.jobs(state="completed", limit=1)) == 1
    assert calls.total <= 110 * number


def test_E4_many_jobs_alike_are_bound_as_one_value(app: Towline, sqlite: Database) -> None:
    """One more of them is a few calls of Python and none of the driver."""
    task = add_task(app)
    app.enqueue_many([task.call(n) for n in range(9)])
    totals = []
    for number in (100, 600):
        calls = Calls()
        sys.setprofile(calls)
        try:
            app.enqueue_many([task.call(n) for n in range(number)])
        finally:
            sys.setprofile(None)
        totals.append(calls.total)
    assert totals[1] - totals[0] <= PER_JOB_OF_MANY * 500, totals


def test_F5_children_are_bound_as_one_value(app: Towline, sqlite: Database) -> None:
    """Ten thousand of them hold the writer for less than a thousand rows bound one by one would."""
    task, store = add_task(app), app.runner.store
    register(app)
    task.enqueue(0)
    (held,) = app.runner.run(store.turn(WORKER, "w", ["default"], 1)).claimed
    children = [task.call(n) for n in range(1000)]
    following = next_job(task.using(after=children).then(0))
    rows: Counter[str] = Counter()

    def counting() -> Steps[Any]:
        steps = iter(store.finish([Ending(held, Outcome.CONTINUED, next=following)]))
        statement = next(steps)
        while True:
            if isinstance(statement, Statement):
                rows[statement.query.name] += len(statement.rows or ())
            try:
                statement = steps.send((yield statement))
            except StopIteration as stop:
                return stop.value

    assert app.runner.run(Op("finish", counting)).accepted == [held.job_id]
    assert len(app.jobs(state="pending", limit=2000)) == 1000
    assert max(rows.values()) <= 1, rows


def test_G9_a_queue_without_limits_pays_nothing_beside_those_that_have_them(
    app: Towline, database: Database
) -> None:
    """The budgets above, with limits and lanes in another queue of the same worker."""
    task, store = add_task(app), app.runner.store
    register(app)
    app.set_limit("other", concurrency=1)
    task.using(queue="third", lane="acme").enqueue(0)
    app.enqueue_many([task.call(n) for n in range(30)])
    counted = Counted(app)
    counted.run(store.enqueue([task.call(2).new_job(())]))
    assert counted.names.total() == ENQUEUE[database.engine], counted.names
    first = counted.run(store.turn(WORKER, "w", ["default"], 10))
    ends = [completed(job) for job in first.claimed]
    turn = counted.run(store.turn(WORKER, "w", ["default"], 10, ends))
    assert len(turn.finished.accepted) == len(turn.claimed) == 10
    assert counted.names.total() == TURN[database.engine], counted.names
