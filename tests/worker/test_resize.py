"""A worker that gets more slots, or fewer, while it runs; and one that stops after so many jobs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.until import until
from tests.worker.gate import LIMIT
from towline import Towline
from towline.errors import InvalidSetting
from towline.model import State
from towline.worker import Worker
from towline.worker.upkeep import TellSize


class Crowd:
    """Handlers that are let out one by one; how many are inside, and how many were at most."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._out = threading.Semaphore(0)
        self.inside = self.most = 0

    def enter(self) -> None:
        with self._mutex:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self._out.acquire(timeout=LIMIT)
        with self._mutex:
            self.inside -= 1

    def let_out(self, number: int) -> None:
        self._out.release(number)


@pytest.fixture(params=["thread", "loop"])
def crowd(app: Towline, request: pytest.FixtureRequest) -> Crowd:
    """Twenty jobs are waiting that enter it."""
    crowd = Crowd()

    def blocking() -> None:
        crowd.enter()

    async def awaiting() -> None:
        await asyncio.to_thread(crowd.enter)

    task: Any = app.task(blocking if request.param == "thread" else awaiting)
    app.enqueue_many([task.call() for _ in range(20)])
    return crowd


def concurrency_of(app: Towline) -> int:
    (row,) = app.workers()
    return row.concurrency


@pytest.mark.each_engine
def test_a_worker_gets_more_slots_and_fewer_while_it_runs(app: Towline, crowd: Crowd) -> None:
    with app.worker(concurrency=2) as worker:
        until(lambda: crowd.inside == 2)
        worker.resize(5)
        until(lambda: crowd.inside == 5)
        until(lambda: concurrency_of(app) == 5)
        worker.resize(1)
        until(lambda: concurrency_of(app) == 1)
        crowd.let_out(4)
        until(lambda: crowd.inside == 1)
        crowd.most = 0
        crowd.let_out(16)
        until(lambda: app.counts()["default"].get(State.COMPLETED) == 20)
        assert crowd.most == 1
    assert worker.settings.concurrency == 1


def test_a_number_that_makes_no_sense_is_refused(app: Towline) -> None:
    worker: Worker = app.worker()
    for number in (0, -1, True, 1.5):
        with pytest.raises(InvalidSetting, match="concurrency is a number from 1"):
            worker.resize(number)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    worker.resize(3)  # before it runs, too
    with worker:
        until(app.workers)
        assert concurrency_of(app) == 3


@pytest.mark.each_engine
def test_a_worker_stops_when_so_many_have_run(app: Towline) -> None:
    """None more is claimed, not even ahead; one that fails counts like any other."""
    ran: list[int] = []

    @app.task(max_attempts=1)
    def one(number: int) -> None:
        ran.append(number)
        if number == 1:
            raise ValueError(number)

    app.enqueue_many([one.call(number) for number in range(10)])
    assert app.worker(max_jobs=4, concurrency=2).run() == 0
    assert sorted(ran) == [0, 1, 2, 3]
    assert app.counts()["default"] == {
        State.COMPLETED: 3, State.FAILED: 1, State.PENDING: 6,
    }  # fmt: skip
    assert app.workers() == []


def test_a_worker_waits_for_as_many_as_it_is_to_run(app: Towline) -> None:
    @app.task
    def one() -> None:
        pass

    with app.worker(max_jobs=2) as worker:
        one.enqueue().result(timeout=LIMIT)
        assert worker.running
        one.enqueue().result(timeout=LIMIT)
        until(lambda: not worker.running)


def test_a_size_that_changes_while_another_is_told_is_told_next(app: Towline) -> None:
    """From another thread, at the moment at which the duty looks at what it is to tell."""
    settings = app.worker(concurrency=2).settings

    class Turns:
        worker = 1
        store = app.runner.store
        run = staticmethod(app.runner.run)

        @property
        def settings(self) -> Any:
            duty.at = 0.0
            return settings

    turns: Any = Turns()
    duty = TellSize(turns)
    duty.do(0.0)
    assert duty.at == 0.0
