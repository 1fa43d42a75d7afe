"""Work that waits for a worker: after a crash, a pause, an unknown task, a time to come."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import INJECTED, Context, State, Towline

pytestmark = pytest.mark.each_engine

PROGRAM = """
import os, sys, threading
from towline import Towline
app = Towline(sys.argv[1])

@app.task(max_attempts=1)
def work() -> None:
    os.write(1, b"inside\\n")
    threading.Event().wait(60)

app.worker(name="victim", lease=3000).run()
"""


def test_a_killed_worker_is_taken_over_at_once(
    app: Towline, database: Database, tmp_path: Path
) -> None:
    """L4: same host, process gone: no lease is waited for; the lost attempt stays in the history
    and is no failure of the job."""

    @app.task(max_attempts=1)
    def work(ctx: Context = INJECTED) -> int:
        return ctx.attempt

    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, program, database.url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process:
        try:
            job = work.enqueue()
            assert process.stdout.readline() == b"inside\n"
        finally:
            process.kill()
    assert [worker.name for worker in app.workers()] == ["victim"]
    with app.worker(name="heir"):
        until(lambda: outcomes(app, job.id) == ["lost"])
        until(lambda: [worker.name for worker in app.workers()] == ["heir"])
        assert job.refresh().state is State.SCHEDULED  # after a jitter, so as not to meet again
        app.run_now(job.id)
        assert job.result(LIMIT) == 2
    first, second = app.attempts(job.id)
    assert (first.worker, second.worker) == ("victim", "heir")
    assert "died or lost its lease" in (first.error or "")


def test_a_living_process_is_not_taken_over(
    app: Towline, database: Database, tmp_path: Path
) -> None:
    """L4: a stopped process of this host has its lease."""

    @app.task(max_attempts=1)
    def work() -> None:
        raise AssertionError("it was taken over")

    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, program, database.url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process:
        try:
            job = work.enqueue()
            assert process.stdout.readline() == b"inside\n"
            os.kill(process.pid, signal.SIGSTOP)
            with app.worker(name="heir", lease=1) as worker:
                until(lambda: worker.pump.turns.worker)
                threading.Event().wait(1.5)
            assert job.refresh().state is State.RUNNING
            assert [worker.name for worker in app.workers()] == ["victim"]
        finally:
            process.kill()


def test_a_parked_job_starts_when_a_worker_knows_its_task(
    app: Towline, make_app: Callable[..., Towline]
) -> None:
    """L7: no attempt is used meanwhile, and the reason is shown."""
    other = make_app()

    @other.task
    def unknown(number: int, ctx: Context = INJECTED) -> int:
        return number

    @app.task
    def known() -> str:
        return "went on"

    with app.worker():
        jobs = [unknown.enqueue(number) for number in range(5)]
        until(lambda: all(job.refresh().reason for job in jobs))
        assert known.enqueue().result(LIMIT) == "went on"
        assert {job.state for job in jobs} == {State.PENDING}
        assert "unknown" in (jobs[0].reason or "")
        assert app.attempts(jobs[0].id) == []
    with other.worker():
        assert [job.result(LIMIT) for job in jobs] == list(range(5))
    assert outcomes(app, jobs[0].id) == ["completed"]


def test_a_paused_queue_waits_until_it_is_resumed(
    app: Towline, make_app: Callable[..., Towline]
) -> None:
    """L8: another app pauses; a running worker sees it, and so does one that begins later."""

    @app.task(queue="slow")
    def slow() -> str:
        return "slow"

    @app.task
    def quick() -> str:
        return "quick"

    other = make_app()
    with app.worker():
        assert slow.enqueue().result(LIMIT) == "slow"
        other.pause("slow")
        job = slow.enqueue()
        assert quick.enqueue().result(LIMIT) == "quick"
        assert job.refresh().state is State.PENDING
    with app.worker():
        assert quick.enqueue().result(LIMIT) == "quick"
        assert job.refresh().state is State.PENDING
        other.resume("slow")
        assert job.result(LIMIT) == "slow"


def test_a_job_does_not_start_before_its_time(app: Towline) -> None:
    """S1: by the database's clock; a past time means now."""

    @app.task
    def now() -> None:
        pass

    with app.worker():
        late = now.using(delay=0.3).enqueue()
        past = now.using(at=datetime.now(UTC) - timedelta(days=1)).enqueue()
        assert late.state is State.SCHEDULED
        past.result(LIMIT)
        late.result(LIMIT)
    due = late.run_at
    (attempt,) = app.attempts(late.id)
    assert due is not None
    assert attempt.started_at is not None
    assert attempt.started_at >= due


def test_a_worker_that_waits_for_a_far_time_wakes_for_a_near_one(
    app: Towline, make_app: Callable[..., Towline]
) -> None:
    """S3, Q4: enqueued by another app and by the application's own connection; then `run_now`."""

    @app.task
    def work(text: str) -> str:
        return text

    other = make_app()

    @other.task(name="work")
    def same(text: str) -> str:
        return text

    with app.worker():
        far = work.using(delay=3000).enqueue("far")
        near = same.using(delay=0.2).enqueue("near")
        assert near.result(LIMIT) == "near"
        assert same.enqueue("now").result(LIMIT) == "now"
        other.run_now(far.id)
        assert far.result(LIMIT) == "far"


def test_a_commit_of_the_application_wakes_the_worker(app: Towline, database: Database) -> None:
    """Q4, E1: it starts after the application's own commit and not before."""

    @app.task
    def work() -> str:
        return "done"

    with app.worker():
        assert work.enqueue().result(LIMIT) == "done"
        connection = database.connect()
        job = work.using(on=connection).enqueue()
        if database.engine == "postgres":  # there the writer is not held by the application
            assert work.enqueue().result(LIMIT) == "done"
        connection.commit()
        connection.close()
        assert job.result(LIMIT) == "done"


def test_two_workers_share_the_work(app: Towline) -> None:
    """L1: each job runs once, whoever gets it."""
    ran: list[int] = []
    both = Gate()

    @app.task
    def meet() -> None:
        both.enter()

    @app.task
    def work(number: int) -> None:
        ran.append(number)

    with app.worker(name="w1", concurrency=1, prefetch=0):
        with app.worker(name="w2", concurrency=1, prefetch=0):
            first, second = meet.enqueue(), meet.enqueue()
            both.wait_inside(2)
            both.open()
            for job in app.enqueue_many([work.call(number) for number in range(100)]):
                job.result(LIMIT)
    assert sorted(ran) == list(range(100))
    assert {job.refresh().worker for job in (first, second)} == {"w1", "w2"}


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
def test_higher_priority_first(app: Towline, awaits: bool) -> None:
    """L6: then age."""
    ran: list[str] = []

    @app.task
    def blocking(name: str) -> None:
        ran.append(name)

    @app.task
    async def awaiting(name: str) -> None:
        await asyncio.sleep(0)
        ran.append(name)

    task = awaiting if awaits else blocking
    for name, priority in (("c", 0), ("e", -1), ("a", 5), ("d", 0), ("b", 5)):
        task.using(priority=priority).enqueue(name)
    app.worker(concurrency=1, drain=True).run()
    assert ran == ["a", "b", "c", "d", "e"]
