"""No room for a thread or a process: nothing is used, and work goes on when there is (A6, A18)."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from tests.worker.test_process_slots import tasks  # noqa: F401
from towline import Backoff, ChainFailed, Towline
from towline.worker.slots import thread as threads

SLOTS = tuple(f"towline-{number}" for number in range(1, 10))


class Full:
    """While it is shut, threads whose name begins so, or processes, cannot be started."""

    def __init__(self) -> None:
        self.shut = True
        self.refused = threading.Semaphore(0)

    def wrap(self, real: Callable[..., Any], error: Exception, name: tuple[str, ...] = ()) -> Any:
        def start(first: Any, *args: Any, **kwargs: Any) -> Any:
            if self.shut and (not name or first.name.startswith(name)):
                self.refused.release()
                raise error
            return real(first, *args, **kwargs)

        return start


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Full]:
    def begin(what: str) -> Full:
        full = Full()
        if what == "fork":
            popen = full.wrap(subprocess.Popen, BlockingIOError(11, "no more processes"))
            monkeypatch.setattr("towline.worker.slots.spawned.subprocess.Popen", popen)
        else:
            name = SLOTS if what == "thread" else (what,)
            no_room = RuntimeError("can't start new thread")
            monkeypatch.setattr(
                threading.Thread, "start", full.wrap(threading.Thread.start, no_room, name)
            )
        return full

    return begin


@pytest.mark.parametrize("what", ["thread", "towline-loop"])
def test_no_thread_for_the_first(
    app: Towline, full: Callable[[str], Full], what: str, trouble: list[logging.LogRecord]
) -> None:
    """Finding A6: handed back with nothing used, and run when there is room again."""

    @app.task
    def blocking(n: int) -> int:
        return n

    @app.task
    async def awaiting(n: int) -> int:
        return n

    task = blocking if what == "thread" else awaiting
    room = full(what)
    with app.worker(concurrency=4):
        jobs = [task.enqueue(n) for n in range(4)]
        for _ in jobs:
            assert room.refused.acquire(timeout=LIMIT)
        room.shut = False
        assert [job.result(LIMIT) for job in jobs] == list(range(4))
    assert [outcomes(app, job.id) for job in jobs] == [["completed"]] * 4


def test_no_thread_for_one_more(sqlite: object, app: Towline, full: Callable[[str], Full]) -> None:
    """Finding A6: those that are there serve the line."""
    room = full("towline-2")

    @app.task
    def one(n: int) -> int:
        return n

    with app.worker(concurrency=4):
        jobs = [one.enqueue(n) for n in range(20)]
        assert [job.result(LIMIT) for job in jobs] == list(range(20))
        room.shut = False
        assert one.enqueue(5).result(LIMIT) == 5


@pytest.mark.parametrize("what", ["fork", "towline-process"])
def test_no_process(
    tasks: Any,  # noqa: F811
    sqlite: object,
    full: Callable[[str], Full],
    what: str,
    trouble: list[logging.LogRecord],
) -> None:
    """Finding A6: handed back with nothing used; a stop meanwhile ends."""
    room = full(what)
    with tasks.app.worker(grace=1):
        job = tasks.add.enqueue(1, 2)
        assert room.refused.acquire(timeout=LIMIT)
    with tasks.app.worker():
        assert room.refused.acquire(timeout=LIMIT)
        room.shut = False
        assert job.result(LIMIT) == 3
    assert outcomes(tasks.app, job.id) == ["completed"]


def test_threads_left_behind_are_bounded(
    sqlite: object,
    app: Towline,
    monkeypatch: pytest.MonkeyPatch,
    trouble: list[logging.LogRecord],
) -> None:
    """Finding A18: then slots are not replaced, and come back when one of them ends."""
    monkeypatch.setattr(threads, "LEFT_BEHIND", 2)
    gate = Gate()

    class Few(threads.ThreadSlots):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._most_left_behind = 2

    monkeypatch.setattr("towline.worker.ThreadSlots", Few)

    @app.task(timeout=0.05, max_attempts=1, backoff=Backoff(first=0))
    def deaf() -> None:
        gate.enter()

    @app.task
    def after() -> str:
        return "went on"

    with app.worker(concurrency=1):
        jobs = [deaf.enqueue() for _ in range(3)]
        for job in jobs:
            with pytest.raises(ChainFailed, match="timeout"):
                job.result(LIMIT)
        told = [r.getMessage() for r in trouble if "is not replaced until" in r.getMessage()]
        assert len(told) == 1
        assert "(deaf)" in told[0]
        assert 'run_in="process"' in told[0]
        last = after.enqueue()
        until(lambda: (app.job(last.id).record.attempt or 0) >= 1)
        gate.open()
        assert last.result(LIMIT) == "went on"
    assert outcomes(app, last.id) == ["completed"]
