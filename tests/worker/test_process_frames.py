"""Process slots that are sent several short attempts at once: each is begun once, by one process,
and none waits for a slow one, goes down with it, or is counted for it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.database import Database
from tests.until import LIMIT, until
from tests.worker.gate import outcomes
from tests.worker.test_process_slots import app, inside, is_gone, path, tasks
from towline import ChainCancelled, ChainFailed, State, Towline
from towline.app.handles import Job
from towline.worker import Worker
from towline.worker.slots.process import ProcessSlots

__all__ = ["app", "path", "tasks"]  # fixtures

BEFORE, BEHIND = 100, 60  # quick jobs, so many that processes get several at once


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was claimed ahead waits for its slot however long that takes."""
    monkeypatch.setattr("towline.worker.lookout.Prefetch.patience", 3600.0)


def enqueued(tasks: Any, *slow: Any) -> tuple[list[Job[Any]], list[Job[Any]]]:
    """Quick jobs with slow ones among them; the slow ones, and the quick ones."""
    before = [tasks.add.call(n, 0) for n in range(BEFORE)]
    behind = [tasks.add.call(n, 0) for n in range(BEFORE, BEFORE + BEHIND)]
    jobs = tasks.app.enqueue_many([*before, *slow, *behind])
    middle = BEFORE + len(slow)
    return jobs[BEFORE:middle], [*jobs[:BEFORE], *jobs[middle:]]


def sent(worker: Worker) -> int:
    """How many attempts the processes have that were not heard to have ended."""
    slots = worker._slots["process"]
    assert isinstance(slots, ProcessSlots)
    with slots.mutex:
        return sum(len(slot.sent) for slot in slots._slots)


def check_completed(app: Towline, quick: list[Job[Any]], attempts: int = 1) -> None:
    """Each has run once, at its first attempt if nothing else is said."""
    assert [job.result(LIMIT) for job in quick] == list(range(BEFORE + BEHIND))
    assert {tuple(outcomes(app, job.id)) for job in quick} == {("completed",)}
    assert max(job.refresh().attempt for job in quick) <= attempts


@pytest.mark.usefixtures("patient")
def test_a_process_that_is_killed_costs_only_the_attempt_that_ran(
    tasks: Any, app: Towline, path: Path
) -> None:
    """O7, O11: what had ended is recorded, what was sent behind it runs in the next process."""
    (slow,), quick = enqueued(tasks, tasks.halt.call(str(path)))
    with app.worker(concurrency=1, prefetch=300) as worker:
        pid = inside(path)
        until(lambda: sent(worker) > 1)
        os.kill(pid, signal.SIGKILL)
        until(lambda: outcomes(app, slow.id)[:1] == ["lost"])
        app.cancel(slow.id)
        check_completed(app, quick)


@pytest.mark.usefixtures("patient")
def test_a_timeout_kills_no_other_attempt(tasks: Any, app: Towline) -> None:
    """O6: its time begins when its own handler does, and those behind it have lost nothing."""
    (slow,), quick = enqueued(tasks, tasks.spin.using(timeout=0.3).call())
    with app.worker(concurrency=1, prefetch=300):
        check_completed(app, quick)
        with pytest.raises(ChainFailed, match="timeout"):
            slow.result(LIMIT)
    assert outcomes(app, slow.id) == ["timeout"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("name", ["spin", "search"])
def test_a_free_slot_takes_over_what_waits_behind_a_slow_handler(
    tasks: Any, sqlite: Any, tmp_path: Path, name: str
) -> None:
    """L2: also when the handler holds the interpreter, and its process answers nothing."""
    app, first, second = tasks.app, tmp_path / "first", tmp_path / "second"
    holding = tasks.halt.enqueue(str(first))
    with app.worker(concurrency=2, prefetch=300) as worker:
        inside(first)
        (slow,), quick = enqueued(tasks, getattr(tasks, name).call(str(second)))
        pid = inside(second)
        until(lambda: sent(worker) > 2)
        first.unlink()
        check_completed(app, quick)
        assert holding.result(LIMIT)
        assert slow.refresh().state is State.RUNNING
        app.cancel(slow.id)
        until(lambda: is_gone(pid))
    assert outcomes(app, slow.id) == ["cancelled"]


@pytest.mark.parametrize("name", ["spin", "search"])
def test_another_worker_gets_what_waits_behind_a_slow_handler(
    tasks: Any, sqlite: Any, path: Path, name: str
) -> None:
    """Finding A4: it goes back to the database, since this worker has no slot for it. How often one
    of them was claimed ahead before is a matter of time."""
    app = tasks.app
    with app.worker(name="first", concurrency=1, prefetch=300):
        tasks.add.enqueue(1, 2).result(LIMIT)
        (slow,), quick = enqueued(tasks, getattr(tasks, name).call(str(path)))
        inside(path)
        with app.worker(name="second", concurrency=1):
            check_completed(app, quick, attempts=100)
            assert slow.refresh().state is State.RUNNING
            app.cancel(slow.id)


@pytest.mark.usefixtures("patient")
def test_what_is_cancelled_behind_another_never_begins(
    tasks: Any, app: Towline, path: Path, tmp_path: Path
) -> None:
    """K1: no process is killed for it."""
    marks = [tmp_path / f"mark {number}" for number in range(2)]
    calls = [tasks.stops.call(str(mark)) for mark in marks]
    (slow, *behind), quick = enqueued(tasks, tasks.halt.call(str(path)), *calls)
    with app.worker(concurrency=1, prefetch=300) as worker:
        pid = inside(path)
        until(lambda: sent(worker) > 2)
        for job in behind:
            app.cancel(job.id)
        keys = {(job.id, 1) for job in behind}
        until(lambda: not keys & worker.pump.turns.held.keys())
        path.unlink()
        check_completed(app, quick)
        assert slow.result(LIMIT) == pid
        assert not is_gone(pid)
    for job in behind:
        with pytest.raises(ChainCancelled):
            job.result(LIMIT)
    assert not any(mark.exists() for mark in marks)


@pytest.mark.usefixtures("patient")
def test_a_stop_gives_back_what_a_process_has_not_begun(
    tasks: Any, app: Towline, path: Path
) -> None:
    """W1, L10: at once, with no attempt in the history; what runs may end."""
    (slow,), quick = enqueued(tasks, tasks.halt.call(str(path)))
    worker = app.worker(concurrency=1, prefetch=300, grace=LIMIT).start()
    pid = inside(path)
    until(lambda: sent(worker) > 1)
    worker.stop(wait=False)
    until(lambda: len(worker.pump.turns.held) == 1)
    path.unlink()
    worker.stop()
    assert slow.result(LIMIT) == pid
    assert [outcomes(app, job.id) for job in quick[BEFORE:]] == [[]] * BEHIND
    assert {job.refresh().state for job in quick[BEFORE:]} == {State.PENDING}
    with app.worker(concurrency=2):
        check_completed(app, quick, attempts=2)


@pytest.mark.usefixtures("patient")
def test_a_process_gets_no_more_than_it_may_run(tasks: Any, sqlite: Any) -> None:
    """W2: max_tasks_per_child, also for those that are sent together."""
    jobs = tasks.app.enqueue_many([tasks.own_process.call() for _ in range(120)])
    with tasks.app.worker(concurrency=1, max_tasks_per_child=40, prefetch=300):
        ran = Counter(job.result(LIMIT) for job in jobs)
    assert list(ran.values()) == [40, 40, 40]


@pytest.mark.usefixtures("patient")
def test_what_was_sent_to_a_worn_process_has_another(tasks: Any, sqlite: Any) -> None:
    """O11: those behind a handler that keeps memory would fail for it."""
    calls = [tasks.own_process.call() for _ in range(BEFORE)]
    jobs = tasks.app.enqueue_many([*calls, tasks.keep.call(200), *calls])
    with tasks.app.worker(concurrency=1, memory_limit=300 << 20, prefetch=300):
        ran = Counter(job.result(LIMIT) for job in jobs)
    assert sorted(ran.values()) == [BEFORE, BEFORE + 1]
    assert {tuple(outcomes(tasks.app, job.id)) for job in jobs} == {("completed",)}


@pytest.mark.usefixtures("patient")
def test_a_task_that_a_process_does_not_know_fails_alone(tasks: Any, app: Towline) -> None:
    """X1: those before and behind it run."""

    @app.task(run_in="process", max_attempts=1)
    def only_here() -> int:
        return 1

    (unknown,), quick = enqueued(tasks, only_here.call())
    with app.worker(concurrency=1, prefetch=300):
        check_completed(app, quick)
        with pytest.raises(ChainFailed, match="no task named only_here is registered"):
            unknown.result(LIMIT)
    assert outcomes(app, unknown.id) == ["failed"]


def test_progress_and_lines_are_those_of_their_own_attempt(tasks: Any, sqlite: Any) -> None:
    """O9: of many that are sent together."""
    jobs = tasks.app.enqueue_many([tasks.tell.call(n) for n in range(300)])
    with tasks.app.worker(concurrency=2):
        assert [job.result(LIMIT) for job in jobs] == list(range(300))
    told = [job.refresh().progress for job in jobs]
    assert [(p.fraction, p.text) for p in told if p] == [(n / 1000, f"{n}") for n in range(300)]


JOBS, KILLS = 4000, 12


def test_an_attempt_is_called_once_whatever_is_killed(
    tasks: Any, app: Towline, database: Database, path: Path
) -> None:
    """O7, O11, L1: of each job one attempt completes. No attempt is called twice; one that was
    called is in the history, one that completed was called, and a kill costs one at most."""
    path.touch()
    app.enqueue_many([tasks.note.call(str(path)) for _ in range(JOBS)])
    killed: set[int] = set()
    chance = random.Random(7)
    with app.worker(concurrency=2):
        while len(killed) < KILLS and len(lines := path.read_text().splitlines()) < JOBS:
            time.sleep(chance.uniform(0.0, 0.03))
            if lines and (pid := int(lines[-1].split()[-1])) not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
        until(lambda: not database.rows("SELECT 1 FROM towline_live"))
    called = [tuple(map(int, line.split()[:2])) for line in path.read_text().splitlines()]
    rows = database.rows("SELECT job_id, number, outcome FROM towline_attempts")
    history = {(job_id, attempt): outcome for job_id, attempt, outcome in rows}
    completed = {key for key, outcome in history.items() if outcome == "completed"}
    lost = {key for key, outcome in history.items() if outcome == "lost"}
    assert len(completed) == len({job_id for job_id, _ in completed}) == JOBS
    assert len(called) == len(set(called))
    assert completed <= set(called) <= history.keys() == completed | lost
    assert len(lost) <= len(killed)
    assert killed
