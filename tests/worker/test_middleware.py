"""Middleware: around each attempt, seeing how it ends, without a say in that."""

from __future__ import annotations

from collections.abc import Generator
from contextvars import ContextVar
from typing import Any

import pytest

from tests.until import until
from tests.worker.gate import LIMIT, outcomes
from towline import (
    INJECTED,
    Backoff,
    Cancel,
    ChainCancelled,
    ChainFailed,
    Context,
    State,
    Towline,
)

AT_ONCE = Backoff(first=0)
Steps = Generator[None, Any, None]

tenant: ContextVar[str] = ContextVar("tenant")


@pytest.fixture(params=[False, True], ids=["thread", "loop"])
def awaits(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_the_first_is_outermost_and_all_see_the_value(app: Towline, awaits: bool) -> None:
    """X5: in order before, in reverse after; they know the job."""
    seen: list[Any] = []

    @app.add_middleware
    def outer(ctx: Context) -> Steps:
        seen.append(("outer", ctx.task, ctx.attempt))
        value = yield
        seen.append(("outer", value))

    @app.add_middleware
    def inner(ctx: Context) -> Steps:
        seen.append("inner")
        value = yield
        seen.append(("inner", value))

    @app.task(name="work")
    def blocking() -> int:
        seen.append("handler")
        return 7

    @app.task(name="awaited")
    async def awaiting() -> int:
        return blocking()

    task = awaiting if awaits else blocking
    with app.worker():
        assert task.enqueue().result(LIMIT) == 7
    assert seen == [("outer", task.name, 1), "inner", "handler", ("inner", 7), ("outer", 7)]


def test_all_see_the_exception_and_none_makes_a_success_of_it(app: Towline, awaits: bool) -> None:
    """X5: one swallows it, one raises another, one yields again; the record is the handler's."""
    seen: list[str] = []

    @app.add_middleware
    def sees(ctx: Context) -> Steps:
        try:
            yield
        except ValueError as error:
            seen.append(str(error))
            raise

    @app.add_middleware
    def swallows(ctx: Context) -> Steps:
        try:
            yield
        except ValueError:
            seen.append("swallowed")

    @app.add_middleware
    def replaces(ctx: Context) -> Steps:
        try:
            yield
        except ValueError:
            seen.append("replaced")
            raise KeyError("another") from None

    @app.add_middleware
    def stubborn(ctx: Context) -> Steps:
        while True:
            try:
                yield
            except ValueError:
                seen.append("again")

    @app.add_middleware
    def deaf(ctx: Context) -> Steps:
        for _ in range(3):
            try:
                yield
            except BaseException:
                seen.append("deaf")

    @app.task(max_attempts=1)
    def blocking() -> None:
        raise ValueError("the handler's own")

    @app.task(max_attempts=1)
    async def awaiting() -> None:
        raise ValueError("the handler's own")

    with app.worker():
        job = (awaiting if awaits else blocking).enqueue()
        with pytest.raises(ChainFailed, match="the handler's own"):
            job.result(LIMIT)
    assert seen[-4:] == ["again", "replaced", "swallowed", "the handler's own"]
    assert outcomes(app, job.id) == ["failed"]


def test_it_can_add_context(app: Towline, awaits: bool) -> None:
    """X5, W2: a variable that it sets is there in the handler, and gone after it."""

    @app.add_middleware
    def sets(ctx: Context) -> Steps:
        assert tenant.get("none") == "none"
        tenant.set(f"tenant of {ctx.job_id}")
        yield

    @app.task
    def blocking() -> str:
        return tenant.get()

    @app.task
    async def awaiting() -> str:
        return tenant.get()

    with app.worker(concurrency=1):
        for _ in range(3):
            job = (awaiting if awaits else blocking).enqueue()
            assert job.result(LIMIT) == f"tenant of {job.id}"


@pytest.mark.parametrize("when", ["called", "before", "after"])
def test_its_own_failure_is_an_ordinary_failure(app: Towline, awaits: bool, when: str) -> None:
    """X5: of the attempt, with its traceback; the next attempt may succeed."""
    ran: list[int] = []

    def fail(ctx: Context, now: str) -> None:
        if now == when and ctx.attempt == 1:
            raise OSError(f"failed {now}")

    @app.add_middleware
    def fails(ctx: Context) -> Steps:
        fail(ctx, "called")
        return _steps(ctx)

    def _steps(ctx: Context) -> Steps:
        fail(ctx, "before")
        yield
        fail(ctx, "after")

    @app.task(backoff=AT_ONCE)
    def blocking(ctx: Context = INJECTED) -> str:
        ran.append(ctx.attempt)
        return "done"

    @app.task(backoff=AT_ONCE)
    async def awaiting(ctx: Context = INJECTED) -> str:
        return blocking(ctx)

    with app.worker():
        job = (awaiting if awaits else blocking).enqueue()
        assert job.result(LIMIT) == "done"
    assert ran == ([1, 2] if when == "after" else [2])
    assert outcomes(app, job.id) == ["failed", "completed"]
    assert f"failed {when}" in (app.attempts(job.id)[0].error or "")


def test_it_may_end_the_job_as_a_handler_may(app: Towline) -> None:
    """X5: Cancel before the handler is called."""

    @app.add_middleware
    def refuses(ctx: Context) -> Steps:
        if ctx.label == "forbidden":
            raise Cancel("not allowed")
        yield

    @app.task
    def work() -> str:
        return "done"

    with app.worker():
        with pytest.raises(ChainCancelled, match="not allowed"):
            work.using(label="forbidden").enqueue().result(LIMIT)
        assert work.enqueue().result(LIMIT) == "done"


def test_one_that_is_no_generator_or_never_yields(app: Towline) -> None:
    """X5: the first is an ordinary failure that says so, the second is just not heard of after."""
    called: list[str] = []

    @app.add_middleware
    def nothing(ctx: Context) -> Steps:
        called.append("nothing")
        if ctx.job_id < 0:
            yield

    @app.task(max_attempts=1)
    def work() -> str:
        return "done"

    with app.worker():
        assert work.enqueue().result(LIMIT) == "done"
        app.middleware.append(lambda ctx: None)  # type: ignore[arg-type,return-value] # pyright: ignore[reportArgumentType]
        job = work.enqueue()
        until(lambda: job.refresh().state is State.FAILED)
    assert called == ["nothing", "nothing"]
    assert "TypeError" in (job.error or "")


@pytest.mark.parametrize("when", ["before", "after"])
def test_exits_of_middleware_cost_only_the_attempt(app: Towline, awaits: bool, when: str) -> None:
    """O7, X5"""

    @app.add_middleware
    def exits(ctx: Context) -> Steps:
        if when == "before" and ctx.label:
            raise SystemExit(3)
        yield
        if ctx.label:
            raise KeyboardInterrupt

    @app.task(max_attempts=1)
    def blocking() -> str:
        return "done"

    @app.task(max_attempts=1)
    async def awaiting() -> str:
        return "done"

    task = awaiting if awaits else blocking
    with app.worker(concurrency=1):
        job = task.using(label="bad").enqueue()
        until(lambda: job.refresh().state is State.FAILED)
        assert task.enqueue().result(LIMIT) == "done"
