"""An awaiting handler that blocks its event loop: others are not kept by it (finding A5)."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import Backoff, ChainFailed, State, Towline
from towline.worker.slots import loop as loops


class Block(Gate):
    """A gate at which a handler blocks its loop for longer than any test waits."""

    def enter(self) -> None:
        self._inside.release()
        self._open.wait(4 * LIMIT)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Block()
    yield gate
    gate.open()


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop counts as blocked after a few beats."""
    monkeypatch.setattr(loops, "ANSWER_CHECK", 0.05)
    monkeypatch.setattr(loops, "MOST_MISSED", 4)


def test_others_complete_while_one_is_blocked_beyond_its_timeout(
    app: Towline, gate: Gate, trouble: list[logging.LogRecord]
) -> None:
    """O6, O8: its slot is replaced by one that works."""

    @app.task(timeout=0.1, max_attempts=1)
    async def blocks() -> None:
        gate.enter()

    @app.task(timeout=20)
    async def other(n: int) -> int:
        await asyncio.sleep(0)
        return n

    with app.worker(concurrency=4):
        job = blocks.enqueue()
        gate.wait_inside()
        others = [other.enqueue(n) for n in range(6)]
        assert [job.result(LIMIT) for job in others] == list(range(6))
        with pytest.raises(ChainFailed, match="timeout"):
            job.result(LIMIT)
        assert [outcomes(app, job.id) for job in others] == [["completed"]] * 6
        gate.open()
        until(lambda: sum(t.name == "towline-loop" for t in threading.enumerate()) == 1)
        assert other.enqueue(7).result(LIMIT) == 7


@pytest.mark.usefixtures("_soon")
def test_others_complete_while_one_without_a_timeout_blocks(app: Towline, gate: Gate) -> None:
    """O8: and what had begun beside it goes on where it is."""
    beside = threading.Event()

    @app.task
    async def slow() -> str:
        beside.set()
        await asyncio.sleep(0.05)
        return "slow"

    @app.task
    async def blocks() -> str:
        gate.enter()
        return "came back"

    @app.task
    async def other(n: int) -> int:
        return n

    with app.worker(concurrency=4):
        first = slow.enqueue()
        assert beside.wait(LIMIT)
        job = blocks.enqueue()
        gate.wait_inside()
        assert [other.enqueue(n).result(LIMIT) for n in range(6)] == list(range(6))
        gate.open()
        assert job.result(LIMIT) == "came back"
        assert first.result(LIMIT) == "slow"
    assert outcomes(app, job.id) == ["completed"]


@pytest.mark.usefixtures("_soon")
def test_the_applications_own_loop_hands_back_what_it_cannot_begin(
    app: Towline, gate: Gate, trouble: list[logging.LogRecord]
) -> None:
    """O8: a second worker takes it, and no attempt is used; the log says once what to look for."""

    @app.task
    async def blocks() -> str:
        gate.enter()
        return "came back"

    @app.task
    async def other(n: int) -> int:
        return n

    ended = threading.Event()

    async def serve() -> None:
        async with app.worker(concurrency=2, name="own"):
            while not ended.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        job = blocks.enqueue()
        gate.wait_inside()
        others = [other.enqueue(n) for n in range(3)]
        until(lambda: app.job(others[0].id).state is State.RUNNING)
        with app.worker(name="second"):
            assert [one.result(LIMIT) for one in others] == [0, 1, 2]
        assert [outcomes(app, one.id) for one in others] == [["completed"]] * 3
        assert ["await job.aresult()" in line.getMessage() for line in trouble] == [True]
        gate.open()
        assert job.result(LIMIT) == "came back"
        assert other.enqueue(9).result(LIMIT) == 9
    finally:
        gate.open()
        ended.set()
        thread.join(LIMIT)


def test_a_stop_does_not_wait_for_a_blocked_loop(app: Towline, gate: Gate) -> None:
    """W1: what blocks is handed back too."""

    @app.task
    async def blocks() -> None:
        gate.enter()

    @app.task
    async def other() -> None: ...

    worker = app.worker(concurrency=1, grace=0.2).start()
    job = blocks.enqueue()
    gate.wait_inside()
    behind = other.enqueue()
    worker.stop()
    assert app.job(job.id).state is State.PENDING
    assert app.job(behind.id).state is State.PENDING


def test_one_that_swallows_its_cancellation_ends_in_silence(
    sqlite: object, app: Towline, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is printed when the garbage collector ends it at last."""
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    inside = Gate()

    @app.task(backoff=Backoff(first=0))
    async def deaf() -> None:
        inside.pass_by()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass

    with app.worker(grace=0.2):
        deaf.enqueue()
        inside.wait_inside()
    until(lambda: not any(t.name == "towline-loop" for t in threading.enumerate()))
    gc.collect()
    assert said == []
    assert "destroyed" not in caplog.text
