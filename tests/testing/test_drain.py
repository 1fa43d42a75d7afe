"""`drain` runs what could run now, in the thread of the test, and hides no error."""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from typing import Any

import pytest

from tests import servers
from towline import (
    INJECTED,
    Backoff,
    Cancel,
    ChainState,
    Context,
    Fail,
    Next,
    Outcome,
    Retry,
    Snooze,
    State,
    Towline,
    context,
)
from towline.errors import InvalidSetting, InvalidState, InvalidTask
from towline.testing import Clock, adrain, drain, isolated


def test_it_runs_everything_in_the_callers_thread(app: Towline) -> None:
    threads: list[threading.Thread] = []

    @app.task
    def note(n: int) -> int:
        threads.append(threading.current_thread())
        return n * 2

    @app.task
    async def anote(n: int) -> int:
        threads.append(threading.current_thread())
        await asyncio.sleep(0)
        return n * 3

    jobs = app.enqueue_many([note.call(1), anote.call(2), note.using(queue="other").call(3)])
    assert drain(app) == 3
    assert [job.result(timeout=0) for job in jobs] == [2, 6, 6]
    assert set(threads) == {threading.current_thread()}
    assert drain(app) == 0
    assert app.workers() == []


def test_awaiting_handlers_share_one_loop(app: Towline) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @app.task
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    app.enqueue_many([look.call(), look.call()])
    drain(app)
    assert len(loops) == 2
    assert len(set(map(id, loops))) == 1


def test_higher_priority_and_age_decide_the_order(app: Towline) -> None:
    """L6"""
    order: list[str] = []

    @app.task
    def note(name: str) -> None:
        order.append(name)

    app.enqueue_many([note.call("b"), note.call("c"), note.using(priority=9).call("a")])
    drain(app)
    assert order == ["a", "b", "c"]


def test_continuations_dependents_and_new_jobs_are_run_too(app: Towline) -> None:
    """C1, B1"""

    @app.task
    def one(n: int) -> Next[int]:
        return two.then(n + 1)

    @app.task
    def two(n: int) -> int:
        plain.enqueue()
        return n * 10

    @app.task
    def plain() -> str:
        return "plain"

    @app.task
    def join(ctx: Context = INJECTED) -> list[Any]:
        return list(ctx.blockers)

    job = join.using(after=[one.enqueue(1), plain.enqueue()]).enqueue()
    assert drain(app) == 5
    assert job.result(timeout=0) == [20, "plain"]
    assert app.counts() == {"default": {State.COMPLETED: 5}}


def test_a_handlers_error_comes_out_with_its_own_traceback(app: Towline) -> None:
    """O2"""

    @app.task
    def divide(a: int, b: int) -> float:
        return a / b

    job = divide.enqueue(1, 0)
    with pytest.raises(ZeroDivisionError) as caught:
        drain(app)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-1] == "divide"
    assert caught.value.__notes__ == [f"in attempt 1 of job {job.id} (divide)"]
    (attempt,) = app.attempts(job.id)
    assert attempt.outcome is Outcome.FAILED
    assert job.refresh().state is State.SCHEDULED
    assert app.workers() == []


def test_an_awaiting_handlers_error_too(app: Towline) -> None:
    @app.task
    async def bad() -> None:
        raise LookupError("gone")

    bad.enqueue()
    with pytest.raises(LookupError, match="gone"):
        drain(app)


def test_errors_are_only_recorded_when_that_is_asked_for(app: Towline, hand: Clock) -> None:
    """O2"""

    @app.task(max_attempts=2, backoff=Backoff(first=60, jitter=0))
    def bad() -> None:
        raise ValueError("no")

    job = bad.enqueue()
    assert drain(app, raising=False) == 1
    hand.advance(59)
    assert drain(app, raising=False) == 0
    hand.advance(1)
    assert drain(app, raising=False) == 1
    assert job.refresh().state is State.FAILED
    assert [attempt.outcome for attempt in app.attempts(job.id)] == [Outcome.FAILED] * 2


def test_an_interrupt_always_comes_out(app: Towline) -> None:
    @app.task
    def stop() -> None:
        raise KeyboardInterrupt

    stop.enqueue()
    with pytest.raises(KeyboardInterrupt):
        drain(app, raising=False)


@pytest.mark.parametrize(
    ("signal", "state"),
    [
        (Retry("later", delay=5), State.SCHEDULED),
        (Snooze(5), State.SCHEDULED),
        (Cancel("not wanted"), State.CANCELLED),
        (Fail("no use"), State.FAILED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_handler_says_is_no_error(app: Towline, signal: Exception, state: State) -> None:
    """O3"""

    @app.task
    def say() -> None:
        raise signal

    job = say.enqueue()
    assert drain(app) == 1
    assert job.refresh().state is state


def test_an_output_that_cannot_be_stored_is_an_error(app: Towline) -> None:
    """O4"""

    @app.task
    def bad() -> Any:
        return object()

    job = bad.enqueue()
    with pytest.raises(Exception, match="object"):
        drain(app)
    assert job.refresh().state is State.FAILED


def test_a_task_that_is_not_there_is_an_error_and_no_attempt(app: Towline) -> None:
    """L7"""

    @app.task
    def known() -> None: ...

    job = known.enqueue()
    task = app.registry.pop("known")
    with pytest.raises(InvalidTask, match="task known, which this app does not have"):
        drain(app)
    assert drain(app, raising=False) == 0
    assert app.attempts(job.id) == []
    app.registry["known"] = task
    assert drain(app) == 1


def test_until_stops_when_that_chain_has_ended(app: Towline) -> None:
    @app.task
    def step(n: int) -> int | Next[int]:
        return step.then(n - 1) if n else 0

    first, second = app.enqueue_many([step.call(2), step.call(2)])
    drain(app, until=first)
    assert first.result(timeout=0) == 0
    assert app.chain(second.chain_id).state is ChainState.OPEN


def test_until_says_why_a_chain_does_not_end(app: Towline) -> None:
    @app.task
    def later() -> None: ...

    job = later.using(delay=60).enqueue()
    with pytest.raises(
        AssertionError, match=rf"chain {job.id} has not ended; job {job.id} \(later"
    ):
        drain(app, until=job)


def test_a_circle_is_found(app: Towline) -> None:
    @app.task
    def again() -> Next[None]:
        return again.then()

    job = again.enqueue()
    with pytest.raises(AssertionError, match="still work after 5 attempts"):
        drain(app, limit=5)
    assert app.counts()["default"] == {State.PENDING: 1, State.COMPLETED: 5}
    assert app.chain(job.id).state is ChainState.OPEN


def test_it_can_move_the_clock_to_what_is_due(app: Towline, hand: Clock) -> None:
    """S1"""
    seen: list[float] = []
    start = hand()

    @app.task(max_attempts=3, backoff=Backoff(first=100, factor=2, jitter=0))
    def flaky(ctx: Context = INJECTED) -> str:
        seen.append((hand() - start) / 1_000_000)
        if len(seen) < 3:
            raise OSError("away")
        return "there"

    job = flaky.using(delay=50.5).enqueue()
    assert drain(app, raising=False, advance=True) == 3
    assert seen == [50.5, 150.5, 350.5]
    assert job.result(timeout=0) == "there"


def test_only_a_tests_clock_can_be_moved() -> None:
    with isolated() as app:
        with pytest.raises(InvalidSetting, match="clock=Clock"):
            drain(app, advance=True)


def test_paused_queues_give_nothing(app: Towline) -> None:
    """L8"""

    @app.task
    def quiet() -> None: ...

    quiet.enqueue()
    app.pause("default")
    assert drain(app) == 0
    app.resume("default")
    assert drain(app) == 1


def test_the_context_is_there(app: Towline) -> None:
    """O9"""

    @app.task
    def deep() -> int:
        context().progress(0.5, "half way")
        return context().attempt

    job = deep.enqueue()
    drain(app)
    assert job.refresh().output == 1
    assert job.progress is not None
    assert job.progress.text == "half way"


def test_a_handlers_transaction_ends_the_job(app: Towline) -> None:
    """O1"""

    @app.task
    def write(ctx: Context = INJECTED) -> str:
        with ctx.transaction() as tx:
            tx.execute("CREATE TABLE mine (n INTEGER)")
            tx.complete("written")
        return "ignored"

    job = write.enqueue()
    drain(app)
    assert job.result(timeout=0) == "written"


def test_middleware_is_run(app: Towline) -> None:
    seen: list[object] = []

    @app.add_middleware
    def around(ctx: Context) -> Any:
        seen.append(ctx.task)
        seen.append((yield))

    @app.task
    def inner() -> str:
        return "value"

    inner.enqueue()
    drain(app)
    assert seen == ["inner", "value"]


def test_adrain_runs_on_the_callers_loop(app: Towline) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @app.task
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    @app.task
    def plain() -> int:
        return 1

    async def test() -> None:
        await look.aenqueue()
        job = await plain.aenqueue()
        assert await adrain(app) == 2
        assert loops == [asyncio.get_running_loop()]
        assert await job.aresult(timeout=0) == 1

    asyncio.run(test())


def test_drain_beside_a_running_loop_says_what_to_do(app: Towline) -> None:
    @app.task
    async def look() -> None: ...

    async def test() -> None:
        job = await look.aenqueue()
        with pytest.raises(InvalidState, match="await adrain"):
            drain(app)
        assert (await job.arefresh()).state is State.PENDING
        assert app.attempts(job.id) == []

    asyncio.run(test())
    assert drain(app) == 1


def test_it_drains_postgres_too() -> None:
    """C1, O2"""
    hand = Clock()
    with servers.server(servers.servers()[-1]).database() as url:
        app = Towline(url, clock=hand)

        @app.task(max_attempts=2)
        def flaky(ctx: Context = INJECTED) -> Next[int]:
            if ctx.attempt == 1:
                raise OSError("away")
            return plain.then()

        @app.task
        async def plain() -> int:
            return 7

        job = flaky.enqueue()
        assert drain(app, raising=False, advance=True) == 3
        assert job.result(timeout=0) == 7
        app.close()


def test_the_two_faces_say_the_same() -> None:
    assert inspect.signature(drain) == inspect.signature(adrain)
