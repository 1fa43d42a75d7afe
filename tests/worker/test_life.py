"""A worker's life: registering, stopping, handing back, beginning again, draining."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate, heard, outcomes
from towline import INJECTED, Context, InvalidState, State, Towline
from towline.errors import InvalidSetting
from towline.exit_codes import AT_ONCE, OK


def test_a_worker_registers_and_signs_off(app: Towline) -> None:
    """W4: who, where, for which queues; its lease is renewed while it lives."""

    @app.task(queue="mail")
    def one() -> None:
        pass

    @app.task
    def other() -> None:
        pass

    with app.worker(name="w1", concurrency=3, lease=1) as worker:
        (row,) = until(app.workers)
        assert (row.name, row.host, row.pid) == ("w1", socket.gethostname(), os.getpid())
        assert (row.queues, row.concurrency) == (("default", "mail"), 3)
        assert worker.running
        until(lambda: app.workers()[0].seen_at > row.seen_at)
    assert app.workers() == []
    assert not worker.running


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 0},
        {"max_jobs": 0},
        {"concurrency": True},
        {"concurrency": 1.5},
        {"lease": 0.5},
        {"lease": float("nan")},
        {"lease": -30},
        {"grace": -1},
        {"prefetch": -1},
        {"queues": []},
        {"queues": "default"},
        {"prefetch": 1.5},
        {"queues": [""]},
        {"queues": [None]},
        {"name": "\x00"},  # would never register on PostgreSQL
        {"name": "x" * 201},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(
    app: Towline, sqlite: Database, settings: Any
) -> None:
    """W5: before anything begins."""
    with pytest.raises(InvalidSetting):
        app.worker(**settings)


def test_a_queue_nobody_uses_is_worth_a_warning(app: Towline, trouble: list[Any]) -> None:
    """W5"""

    @app.task
    def known() -> None:
        pass

    with app.worker(queues=["default", "defualt"]):
        pass
    assert [record.getMessage() for record in trouble if "defualt" in record.getMessage()]


def test_handlers_that_end_within_the_grace_time_complete(app: Towline) -> None:
    """W1: threads and coroutines; nothing more is claimed."""
    gate = Gate()

    @app.task
    def blocking() -> str:
        gate.enter()
        return "thread"

    @app.task
    async def awaiting() -> str:
        await asyncio.to_thread(gate.enter)
        return "loop"

    worker = app.worker(prefetch=0).start()
    running = [blocking.enqueue(), awaiting.enqueue()]
    gate.wait_inside(2)
    worker.stop(wait=False)
    late = blocking.enqueue()
    gate.open()
    worker.stop()
    assert [job.result(LIMIT) for job in running] == ["thread", "loop"]
    assert late.refresh().state is State.PENDING
    assert app.attempts(late.id) == []
    assert app.workers() == []


def test_what_does_not_end_is_handed_back(app: Towline) -> None:
    """W1, O10: released, no attempt is used; what had not begun leaves no trace in the history."""
    gate = Gate()

    @app.task(max_attempts=1)
    def deaf(ctx: Context = INJECTED) -> int:
        if ctx.attempt == 1:
            gate.enter()
        return ctx.attempt

    @app.task(max_attempts=1)
    async def cancelled(ctx: Context = INJECTED) -> int:
        if ctx.attempt == 1:
            gate.pass_by()
            await asyncio.Event().wait()
        return ctx.attempt

    @app.task
    def ahead() -> int:
        return 7

    worker = app.worker(concurrency=1, prefetch=10, grace=0).start()
    jobs = [deaf.enqueue(), cancelled.enqueue()]
    gate.wait_inside(2)
    waiting = [ahead.enqueue() for _ in range(3)]
    until(lambda: all(job.refresh().attempt for job in waiting))  # claimed ahead, and no more
    worker.stop(now=True)
    for job in jobs:
        assert job.refresh().state is State.PENDING
        assert outcomes(app, job.id) == ["released"]
    for job in waiting:
        assert job.refresh().state is State.PENDING
        assert app.attempts(job.id) == []
    gate.open()
    with app.worker():
        assert [job.result(LIMIT) for job in (*jobs, *waiting)] == [2, 2, 7, 7, 7]
    assert [outcomes(app, job.id) for job in jobs] == [["released", "completed"]] * 2


def test_a_handler_that_is_told_of_the_stop_may_still_finish(app: Towline) -> None:
    """W1: after the grace time it has a moment, and what it raises then is no failure."""
    started = threading.Semaphore(0)

    @app.task(max_attempts=1)
    def finishes(ctx: Context = INJECTED) -> str:
        started.release()
        heard(ctx.stop)
        return "finished"

    @app.task(max_attempts=1)
    def gives_up(ctx: Context = INJECTED) -> str:
        if ctx.attempt == 1:
            started.release()
            heard(ctx.stop)
            raise InterruptedError
        return "second time"

    worker = app.worker(grace=0).start()
    jobs = [finishes.enqueue(), gives_up.enqueue()]
    for _ in jobs:
        assert started.acquire(timeout=LIMIT)
    worker.stop()
    assert [str(job.refresh().state) for job in jobs] == ["completed", "pending"]
    assert outcomes(app, jobs[1].id) == ["released"]


def test_a_second_stop_does_not_wait(app: Towline) -> None:
    """W1: the grace time is long, and nobody waits for it."""
    gate = Gate()

    @app.task
    def deaf() -> None:
        gate.enter()

    worker = app.worker(grace=3000).start()
    job = deaf.enqueue()
    gate.wait_inside()
    worker.stop(wait=False)
    assert worker.running
    worker.stop(now=True)
    assert not worker.running
    assert outcomes(app, job.id) == ["released"]
    gate.open()


def test_a_worker_can_begin_again(app: Towline) -> None:
    """W1: threads and loop; not while it runs."""

    @app.task
    def blocking() -> str:
        return "thread"

    @app.task
    async def awaiting() -> str:
        return "loop"

    worker = app.worker()
    for _ in range(3):
        with worker:
            with pytest.raises(InvalidState):
                worker.start()
            assert blocking.enqueue().result(LIMIT) == "thread"
            assert awaiting.enqueue().result(LIMIT) == "loop"
        assert app.workers() == []


def test_coroutines_run_on_the_applications_loop(app: Towline) -> None:
    """W2: inside an asyncio application, and again in another one."""

    @app.task
    async def where() -> int:
        return id(asyncio.get_running_loop())

    worker = app.worker()

    async def application() -> None:
        async with worker:
            job = await where.aenqueue()
            assert await job.aresult(LIMIT) == id(asyncio.get_running_loop())

    asyncio.run(application())
    asyncio.run(application())


def test_the_exit_code_is_that_of_this_run(app: Towline) -> None:
    """W1: a worker that was once stopped at once is not for ever."""
    worker = app.worker(drain=True)
    worker.start()
    worker.stop(now=True)
    assert worker.run() == OK


def test_a_worker_that_ran_on_an_applications_loop_may_run_without_one(app: Towline) -> None:
    """W1, W2: the loop of the first run is closed, and must not be used again."""

    @app.task
    async def where() -> int:
        return id(asyncio.get_running_loop())

    worker = app.worker()

    async def application() -> None:
        async with worker:
            pass

    asyncio.run(application())
    with worker:
        assert where.enqueue().result(LIMIT)


def test_an_applications_loop_that_stops_hands_coroutines_back(app: Towline) -> None:
    """W1: the loop goes on to run them until they were told."""
    gate = Gate()

    @app.task
    async def endless() -> None:
        gate.pass_by()
        await asyncio.Event().wait()

    async def application() -> int:
        async with app.worker(grace=0):
            job = await endless.aenqueue()
            await asyncio.to_thread(gate.wait_inside)
            return job.id

    id = asyncio.run(application())
    assert outcomes(app, id) == ["released"]
    assert app.job(id).state is State.PENDING


def test_a_worker_in_a_thread_of_its_own(app: Towline) -> None:
    """W1: `run()` elsewhere than in the main thread takes no signals, and says how it ended."""

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    worker = app.worker()
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(worker.run()))
    before = signal.getsignal(signal.SIGTERM)
    thread.start()
    assert add.enqueue(1, 2).result(LIMIT) == 3
    assert signal.getsignal(signal.SIGTERM) is before
    worker.stop()
    thread.join(LIMIT)
    assert codes == [OK]


def test_drain_ends_by_itself(app: Towline) -> None:
    """W1: when nothing is left that could run now; what is scheduled stays."""
    ran = []

    @app.task
    def step(number: int) -> Any:
        ran.append(number)
        return step.then(number - 1) if number else None

    @app.task
    async def join() -> None:
        ran.append(-1)

    first = step.enqueue(3)
    join.using(after=[first]).enqueue()
    later = step.using(delay=3600).enqueue(9)
    assert app.worker(drain=True).run() == OK
    assert ran == [3, 2, 1, 0, -1]
    assert later.refresh().state is State.SCHEDULED
    assert app.worker(drain=True).run() == OK


PROGRAM = """
import os, sys, threading
from towline import INJECTED, Context, Towline
app = Towline(sys.argv[1])

@app.task(max_attempts=1)
def polite(ctx: Context = INJECTED) -> str:
    os.write(1, b"inside\\n")
    ctx.stop.wait(60)
    return "finished"

@app.task(max_attempts=1)
def deaf() -> None:
    os.write(1, b"inside\\n")
    threading.Event().wait(60)

def tell() -> None:
    while not worker.pump.is_stopping:
        threading.Event().wait(0.01)
    os.write(1, b"stopping\\n")

worker = app.worker(grace=float(sys.argv[2]))
threading.Thread(target=tell, daemon=True).start()
sys.exit(worker.run())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
def test_signals(
    app: Towline, database: Database, tmp_path: Path, number: signal.Signals, twice: bool
) -> None:
    """W1: exit 0 after the grace time; at once, and saying so, after a second signal."""

    @app.task
    def polite() -> str:
        raise AssertionError("it runs elsewhere")

    @app.task
    def deaf() -> None:
        raise AssertionError("it runs elsewhere")

    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, program, database.url, "3000" if twice else "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process:
        try:
            jobs = [polite.enqueue(), deaf.enqueue()]
            for _ in jobs:
                assert process.stdout.readline() == "inside\n"
            process.send_signal(number)
            if twice:
                assert process.stdout.readline() == "stopping\n"
                process.send_signal(number)
            assert process.wait(LIMIT) == (AT_ONCE if twice else OK)
        finally:
            process.kill()
    assert app.workers() == []
    assert outcomes(app, jobs[1].id) == ["released"]
    assert jobs[1].refresh().state is State.PENDING
