"""Waiting for a chain, on both faces, in this process and beside the worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.until import until
from tests.worker.gate import LIMIT, Gate
from towline import (
    Cancel,
    ChainCancelled,
    ChainFailed,
    Next,
    NotFound,
    State,
    Towline,
    WaitTimeout,
)


@pytest.fixture(params=[False, True], ids=["blocking", "awaiting"])
def wait(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`job.result(…)`, or `await job.aresult(…)`."""
    if request.param:
        return lambda job, timeout=LIMIT: asyncio.run(job.aresult(timeout))
    return lambda job, timeout=LIMIT: job.result(timeout)


def test_the_output_of_the_whole_chain(
    app: Towline, make_app: Callable[..., Towline], wait: Callable[..., Any]
) -> None:
    """C6: also by an app that runs no worker, and by a handle of a job in the middle."""

    @app.task
    def last() -> str:
        return "the end"

    @app.task
    def first() -> Next[str]:
        return last.then()

    with app.worker():
        job = first.enqueue()
        assert wait(job) == "the end"
        assert wait(make_app().job(job.id)) == "the end"
        assert wait(app.job(job.refresh().continued_by or 0)) == "the end"


def test_who_waits_before_the_end_is_woken(app: Towline, wait: Callable[..., Any]) -> None:
    """C6: many at once, while the handler runs."""
    gate = Gate()

    @app.task
    def work(number: int) -> int:
        gate.enter()
        return number

    with app.worker(), ThreadPoolExecutor(6) as pool:
        jobs = [work.enqueue(number) for number in range(3)]
        waiting = [pool.submit(wait, job) for job in jobs * 2]
        gate.wait_inside(3)
        gate.open()
        assert [future.result(LIMIT) for future in waiting] == [0, 1, 2] * 2


def test_many_are_awaited_on_one_loop(app: Towline) -> None:
    """C6: and one that is given up leaves the others waiting."""

    @app.task
    def work(number: int) -> int:
        return number

    async def application() -> None:
        jobs = await app.aenqueue_many([work.call(number) for number in range(50)])
        waiting = [asyncio.create_task(job.aresult(LIMIT)) for job in jobs]
        await asyncio.sleep(0)
        waiting.pop().cancel()
        with app.worker():
            assert await asyncio.gather(*waiting) == list(range(49))

    asyncio.run(application())


def test_a_failure_and_a_cancellation_are_raised(app: Towline, wait: Callable[..., Any]) -> None:
    """C6: with the reason; a cancelled chain is a kind of failed one."""

    @app.task(max_attempts=1)
    def fails() -> None:
        raise ValueError("oh dear")

    @app.task
    def cancels() -> None:
        raise Cancel("not wanted")

    with app.worker():
        with pytest.raises(ChainFailed, match="oh dear") as caught:
            wait(fails.enqueue())
        assert not isinstance(caught.value, ChainCancelled)
        assert "ValueError" in (caught.value.reason or "")
        with pytest.raises(ChainCancelled, match="not wanted"):
            wait(cancels.enqueue())


def test_a_wait_that_takes_too_long(app: Towline, wait: Callable[..., Any]) -> None:
    """C6: the chain goes on; no time at all is a look."""
    gate = Gate()

    @app.task
    def work() -> str:
        gate.enter()
        return "done"

    with app.worker():
        job = work.enqueue()
        gate.wait_inside()
        for timeout in (0, 0.05):
            with pytest.raises(WaitTimeout, match="it goes on"):
                wait(job, timeout)
        gate.open()
        assert wait(job) == "done"
        assert wait(job, 0) == "done"


def test_C6_a_blocking_wait_on_an_event_loop_says_so(app: Towline) -> None:
    """Its loop stood still, and with it the handlers of a worker there; a look is no wait."""

    may_end = asyncio.Event()

    @app.task
    async def work() -> str:
        await may_end.wait()
        return "done"

    async def serve() -> str:
        async with app.worker():
            job = await work.aenqueue()
            with pytest.raises(WaitTimeout, match=r"stood still .* await job\.aresult\(\)"):
                job.result(0.05)
            with pytest.raises(WaitTimeout, match=r"stood still .* await app\.await_\("):
                app.wait([job], timeout=0.05)
            with pytest.raises(WaitTimeout, match=r"it goes on$"):
                job.result(0)
            may_end.set()
            return await job.aresult(LIMIT)

    assert asyncio.run(serve()) == "done"


def test_a_chain_that_is_deleted_meanwhile(app: Towline, wait: Callable[..., Any]) -> None:
    """C6: NotFound, for who waits already and for who comes later."""

    @app.task
    def work() -> None:
        raise AssertionError("it never runs")

    job = work.using(delay=3000).enqueue()
    began = threading.Event()

    def waits() -> Any:
        began.set()
        return wait(job)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waits)
        began.wait(LIMIT)
        app.cancel(job.id)
        with pytest.raises((ChainCancelled, NotFound)):
            waiting.result(LIMIT)
    app.delete(job.id)
    with pytest.raises(NotFound):
        wait(job)


def test_a_running_chain_that_is_deleted_meanwhile(app: Towline, wait: Callable[..., Any]) -> None:
    """C6, R3: its handler's outcome has nowhere to go."""
    gate = Gate()

    @app.task
    def work() -> None:
        gate.enter()

    with app.worker(), ThreadPoolExecutor(1) as pool:
        job = work.enqueue()
        gate.wait_inside()
        waiting = pool.submit(wait, job)
        app.delete(job.id, force=True)
        with pytest.raises(NotFound):
            waiting.result(LIMIT)
        gate.open()


def test_a_retried_chain_can_be_waited_for_again(app: Towline, wait: Callable[..., Any]) -> None:
    """C6, K2"""
    broken = True

    @app.task(max_attempts=1)
    def work() -> str:
        if broken:
            raise ValueError
        return "repaired"

    with app.worker():
        job = work.enqueue()
        with pytest.raises(ChainFailed):
            wait(job)
        broken = False
        job.retry()
        assert wait(job) == "repaired"
        until(lambda: job.refresh().state is State.COMPLETED)


def test_a_handler_may_wait_for_another_chain(app: Towline) -> None:
    """C6: on threads and on the loop, while there is a slot for the other."""

    @app.task
    def leaf(number: int) -> int:
        return number

    @app.task
    def blocking() -> int:
        return leaf.enqueue(1).result(LIMIT)

    @app.task
    async def awaiting() -> int:
        job = await leaf.aenqueue(2)
        return await job.aresult(LIMIT)

    with app.worker(concurrency=3):
        assert blocking.enqueue().result(LIMIT) == 1
        assert awaiting.enqueue().result(LIMIT) == 2
