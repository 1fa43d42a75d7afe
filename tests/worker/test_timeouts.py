"""Handlers that take too long, are cancelled, or lose their job while they run."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from tests.until import until
from tests.worker.gate import LIMIT, Gate, heard, outcomes
from towline import (
    INJECTED,
    Backoff,
    ChainCancelled,
    ChainFailed,
    ChainState,
    Context,
    State,
    StoreUnavailable,
    Towline,
)
from towline.worker import upkeep
from towline.worker.duty import NEVER
from towline.worker.upkeep import Prune

AT_ONCE = Backoff(first=0)


@pytest.mark.parametrize("then", ["returns", "raises"])
def test_a_thread_that_listens_is_told_to_stop(app: Towline, then: str) -> None:
    """O6: whatever it does then, the attempt is recorded as timed out and may be tried again."""

    @app.task(timeout=0.1, max_attempts=2, backoff=AT_ONCE)
    def slow(ctx: Context = INJECTED) -> str:
        heard(ctx.stop)
        assert ctx.cancelled
        if then == "raises":
            raise ValueError("interrupted")
        return "too late"

    with app.worker():
        job = slow.enqueue()
        with pytest.raises(ChainFailed, match="timeout"):
            job.result(LIMIT)
    assert outcomes(app, job.id) == ["timeout", "timeout"]
    assert job.refresh().state is State.FAILED


def test_a_deaf_thread_is_replaced(app: Towline) -> None:
    """O6: the only slot goes to the next job, and what the zombie says later is not heard."""
    gate = Gate()
    left = threading.Event()

    @app.task(timeout=0.1, max_attempts=1)
    def deaf() -> str:
        gate.enter()
        left.set()
        return "from the dead"

    @app.task
    def after() -> str:
        return "went on"

    with app.worker(concurrency=1):
        job = deaf.enqueue()
        gate.wait_inside()
        others = [after.enqueue() for _ in range(3)]
        assert [other.result(LIMIT) for other in others] == ["went on"] * 3
        with pytest.raises(ChainFailed, match="timeout"):
            job.result(LIMIT)
        gate.open()
        heard(left)
        assert after.enqueue().result(LIMIT) == "went on"
    assert outcomes(app, job.id) == ["timeout"]


def test_a_zombie_does_not_end_the_next_attempt(app: Towline) -> None:
    """O6, L3: the second attempt runs while the first still does."""
    first = Gate()

    @app.task(timeout=0.1, backoff=AT_ONCE)
    def deaf(ctx: Context = INJECTED) -> str:
        if ctx.attempt == 1:
            first.enter()
        return f"from attempt {ctx.attempt}"

    with app.worker(concurrency=1):
        job = deaf.enqueue()
        first.wait_inside()
        assert job.result(LIMIT) == "from attempt 2"
        first.open()
    assert outcomes(app, job.id) == ["timeout", "completed"]


def test_a_coroutine_is_cancelled(app: Towline) -> None:
    """O6: it may clean up first; the slot is free at once."""
    cleaned = []

    @app.task(timeout=0.1, max_attempts=2, backoff=AT_ONCE)
    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(1)

    with app.worker(concurrency=1):
        job = slow.enqueue()
        with pytest.raises(ChainFailed, match="timeout"):
            job.result(LIMIT)
    assert cleaned == [1, 1]
    assert outcomes(app, job.id) == ["timeout", "timeout"]


def test_a_coroutine_that_swallows_its_cancellation(app: Towline) -> None:
    """O6: one that returns is timed out too; one that goes on is left to itself."""
    let_go = threading.Event()

    @app.task(timeout=0.1, max_attempts=1)
    async def returns() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        return "too late"

    @app.task(timeout=0.1, max_attempts=1)
    async def deaf() -> str:
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass
        return "from the dead"

    @app.task
    async def after() -> str:
        return "went on"

    with app.worker(concurrency=1):
        jobs = [returns.enqueue(), deaf.enqueue()]
        assert after.enqueue().result(LIMIT) == "went on"
        for job in jobs:
            with pytest.raises(ChainFailed, match="timeout"):
                job.result(LIMIT)
        let_go.set()
        assert after.enqueue().result(LIMIT) == "went on"
    assert [outcomes(app, job.id) for job in jobs] == [["timeout"], ["timeout"]]


def test_a_timeout_counts_from_the_start_of_the_handler(app: Towline) -> None:
    """O6: not from the claim; what waits in line has time."""
    gate = Gate()

    @app.task
    def first() -> None:
        gate.enter()
        threading.Event().wait(0.6)

    @app.task(timeout=0.5, max_attempts=1)
    def second() -> str:
        return "in time"

    with app.worker(concurrency=1, prefetch=5):
        first.enqueue()
        job = second.enqueue()
        gate.wait_inside()
        gate.open()
        assert job.result(LIMIT) == "in time"


def test_a_blocked_loop_does_not_stop_the_worker(app: Towline) -> None:
    """L2: a coroutine that blocks costs no thread its work, and no lease."""
    gate = Gate()

    @app.task
    async def blocks() -> str:
        gate.enter()
        return "at last"

    @app.task
    def thread() -> str:
        return "went on"

    with app.worker(lease=1):
        job = blocks.enqueue()
        gate.wait_inside()
        first = app.workers()[0].seen_at
        until(lambda: (app.workers()[0].seen_at - first).total_seconds() > 1)
        assert thread.enqueue().result(LIMIT) == "went on"
        gate.open()
        assert job.result(LIMIT) == "at last"
    assert outcomes(app, job.id) == ["completed"]


@pytest.mark.parametrize("how", ["cancel", "complete", "fail"])
@pytest.mark.parametrize("outside", [False, True], ids=["same process", "plain app"])
def test_a_job_that_is_ended_while_it_runs(
    app: Towline, make_app: Callable[..., Towline], how: str, outside: bool
) -> None:
    """K1, L10: thread and coroutine are told, and what they return is refused."""
    started = threading.Semaphore(0)
    told: list[str] = []

    @app.task
    def blocking(ctx: Context = INJECTED) -> str:
        started.release()
        heard(ctx.stop)
        told.append("thread")
        return "refused"

    @app.task
    async def awaiting(ctx: Context = INJECTED) -> str:
        started.release()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.cancelled
            told.append("loop")
        return "refused"

    hand = make_app() if outside else app
    with app.worker():
        jobs = [blocking.enqueue(), awaiting.enqueue()]
        for _ in jobs:
            assert started.acquire(timeout=LIMIT)
        for job in jobs:
            if how == "cancel":
                hand.cancel(job.id, reason="enough")
            elif how == "complete":
                hand.complete(job.id, "from outside", by="me")
            else:
                hand.fail(job.id, "no use")
        until(lambda: len(told) == 2)
        for job in jobs:
            if how == "cancel":
                with pytest.raises(ChainCancelled, match="enough"):
                    job.result(LIMIT)
            elif how == "complete":
                assert job.result(LIMIT) == "from outside"
            else:
                with pytest.raises(ChainFailed, match="no use"):
                    job.result(LIMIT)
    ending = {"cancel": "cancelled", "complete": "completed", "fail": "failed"}[how]
    for job in jobs:
        # Only a cancellation ends the running attempt itself; else it is lost to who ended the job.
        assert outcomes(app, job.id)[-1] == ending
        assert outcomes(app, job.id)[:-1] == ([] if how == "cancel" else ["lost"])
        assert app.chain(job.id).state is ChainState(ending)


def test_a_cancelled_handler_that_continues_creates_no_successor(app: Towline) -> None:
    """K1, C5"""
    gate = Gate()

    @app.task
    def last() -> None:
        raise AssertionError("never runs")

    @app.task
    def first(ctx: Context = INJECTED) -> object:
        gate.enter()
        return last.then()

    with app.worker():
        job = first.enqueue()
        gate.wait_inside()
        job.cancel()
        gate.open()
    assert app.chain(job.id).state is ChainState.CANCELLED
    assert len(app.jobs(chain=job.id)) == 1


def test_a_deaf_handler_that_was_cancelled_is_replaced(app: Towline) -> None:
    """K1, O6: the only slot goes to the next job."""
    gate = Gate()

    @app.task
    def deaf() -> None:
        gate.enter()

    @app.task
    def after() -> str:
        return "went on"

    with app.worker(concurrency=1):
        job = deaf.enqueue()
        gate.wait_inside()
        job.cancel()
        assert after.enqueue().result(LIMIT) == "went on"
        gate.open()


@pytest.mark.parametrize("awaits", [False, True], ids=["thread", "loop"])
def test_slots_are_counted_right_after_many_cancellations(app: Towline, awaits: bool) -> None:
    """K1, W2: handlers that stopped when told leave one slot each, not two."""
    started = threading.Semaphore(0)
    inside = most = 0
    mutex = threading.Lock()

    def count(by: int) -> None:
        nonlocal inside, most
        with mutex:
            inside += by
            most = max(most, inside)

    @app.task
    def thread(ctx: Context = INJECTED) -> None:
        started.release()
        heard(ctx.stop)

    @app.task
    async def loop() -> None:
        started.release()
        await asyncio.Event().wait()

    @app.task
    def thread_after() -> None:
        count(1)
        threading.Event().wait(0.02)
        count(-1)

    @app.task
    async def loop_after() -> None:
        count(1)
        await asyncio.sleep(0.02)
        count(-1)

    with app.worker(concurrency=2, prefetch=10):
        for _ in range(4):
            job = (loop if awaits else thread).enqueue()
            assert started.acquire(timeout=LIMIT)
            job.cancel()
        threading.Event().wait(3)  # until nobody has patience with them any more
        after = loop_after if awaits else thread_after
        for job in app.enqueue_many([after.call() for _ in range(12)]):
            job.result(LIMIT)
    assert most <= 2


def test_O6_a_timeout_is_in_time_though_another_duty_failed_as_its_job_was_claimed(
    app: Towline, monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord]
) -> None:
    """The pump pauses after trouble, and it is there that it hears that the handler has begun."""
    failed: list[int] = []

    def fail_once(duty: Prune, now: float) -> None:
        if duty._turns.held:
            duty.at = NEVER
            failed.append(1)
            raise StoreUnavailable("away for a moment")

    monkeypatch.setattr(Prune, "do", fail_once)
    monkeypatch.setattr(upkeep, "PRUNE_INTERVAL", 0.0)
    monkeypatch.setattr(upkeep, "DEAD_CHECK", LIMIT)

    @app.task(timeout=0.3, max_attempts=1)
    async def late() -> None:
        await asyncio.sleep(LIMIT)

    job = late.enqueue()
    with app.worker(concurrency=1):
        until(lambda: job.refresh().state is State.FAILED)
    (attempt,) = app.attempts(job.id)
    assert attempt.started_at is not None
    assert attempt.ended_at is not None
    assert (attempt.ended_at - attempt.started_at).total_seconds() < 5
    assert failed == [1]
