"""A handler that raises: tried again by its rules, and recorded whatever it raised."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from tests.speed import by_speed
from tests.until import until
from tests.worker.gate import LIMIT, outcomes
from towline import (
    INJECTED,
    Backoff,
    Cancel,
    ChainCancelled,
    ChainFailed,
    Context,
    Fail,
    Retry,
    Snooze,
    State,
    Towline,
)

AT_ONCE = Backoff(first=0)
LONG = Backoff(first=3000)


def test_a_raising_handler_is_tried_again_until_its_attempts_are_used_up(app: Towline) -> None:
    """O2, O10: kept with its arguments and every attempt's error and traceback."""

    @app.task(max_attempts=3, backoff=AT_ONCE)
    def broken(name: str, ctx: Context = INJECTED) -> None:
        raise ValueError(f"{name} failed in {ctx.attempt}")

    with app.worker():
        job = broken.enqueue("it")
        with pytest.raises(ChainFailed, match="it failed in 3") as caught:
            job.result(LIMIT)
    assert caught.value.chain_id == job.id
    assert job.refresh().state is State.FAILED
    assert '"it"' in job.arguments
    attempts = app.attempts(job.id)
    assert [(a.number, a.outcome) for a in attempts] == [(n, "failed") for n in (1, 2, 3)]
    for attempt in attempts:
        error = attempt.error or ""
        assert error.startswith("Traceback (most recent call last):")
        assert "in broken" in error
        assert error.endswith(f"ValueError: it failed in {attempt.number}")


@pytest.mark.parametrize("awaits", [False, True], ids=["thread", "loop"])
def test_errors_are_shown_without_our_own_frames(app: Towline, awaits: bool) -> None:
    """O2: what people read begins at their handler; causes are shown."""

    def deep() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    @app.task(name="blocking", max_attempts=1)
    def blocking() -> None:
        deep()

    @app.task(name="awaiting", max_attempts=1)
    async def awaiting() -> None:
        deep()

    with app.worker():
        job = (awaiting if awaits else blocking).enqueue()
        until(lambda: job.refresh().state is State.FAILED)
    error = job.error or ""
    assert "KeyError: 'inner'" in error
    assert "in deep" in error
    assert "towline/worker" not in error
    assert "towline/task" not in error


def test_a_later_attempt_may_succeed(app: Towline) -> None:
    """O2: threads and loop; the history keeps the failures."""

    @app.task(backoff=AT_ONCE)
    def blocking(ctx: Context = INJECTED) -> int:
        if ctx.attempt < 3:
            raise OSError("not yet")
        return ctx.attempt

    @app.task(backoff=AT_ONCE)
    async def awaiting(ctx: Context = INJECTED) -> int:
        return blocking(ctx)

    with app.worker():
        for task in (blocking, awaiting):
            job = task.enqueue()
            assert job.result(LIMIT) == 3
            assert outcomes(app, job.id) == ["failed", "failed", "completed"]


def test_the_back_off_is_waited_for(app: Towline) -> None:
    """O2, S1: a job that failed is scheduled for later."""

    @app.task(backoff=Backoff(first=3000, jitter=0))
    def broken() -> None:
        raise ValueError

    with app.worker():
        job = broken.enqueue()
        until(lambda: job.refresh().state is State.SCHEDULED)
    (attempt,) = app.attempts(job.id)
    assert job.run_at is not None
    assert attempt.ended_at is not None
    assert round((job.run_at - attempt.ended_at).total_seconds()) == 3000


def test_rules_per_exception(app: Towline) -> None:
    """O2: `never` ends the job at once, `per` has a back-off of its own or none, others wait."""
    rules = Backoff(
        first=3000,
        never=(PermissionError,),
        per={FileNotFoundError: None, ConnectionError: AT_ONCE},
    )

    @app.task(backoff=rules, max_attempts=2)
    def broken(kind: str) -> None:
        raise {
            "never": PermissionError,
            "none": FileNotFoundError,
            "own": ConnectionResetError,
            "other": ValueError,
        }[kind](kind)

    with app.worker():
        jobs = {kind: broken.enqueue(kind) for kind in ("never", "none", "own", "other")}
        ended = [jobs[kind] for kind in ("never", "none", "own")]
        until(lambda: {job.refresh().state for job in ended} == {State.FAILED})
        until(lambda: jobs["other"].refresh().state is State.SCHEDULED)
    found = {kind: outcomes(app, job.id) for kind, job in jobs.items()}
    assert found == {
        "never": ["failed"],
        "none": ["failed"],
        "own": ["failed", "failed"],
        "other": ["failed"],
    }


@pytest.mark.parametrize("raised", [True, False], ids=["raised", "returned"])
@pytest.mark.parametrize("awaits", [False, True], ids=["thread", "loop"])
def test_what_a_handler_says_about_its_end(app: Towline, raised: bool, awaits: bool) -> None:
    """O2, O3: Retry counts, Snooze does not, Cancel and Fail end it."""

    def say(word: str, attempt: int) -> Any:
        if word == "retry" and attempt < 3:
            return Retry("once more", delay=0)
        if word == "snooze" and attempt < 9:  # more often than attempts
            return Snooze(0)
        if word == "cancel":
            return Cancel("not wanted")
        if word == "fail":
            return Fail("no use")
        return attempt

    @app.task(backoff=LONG, max_attempts=3)
    def blocking(word: str, ctx: Context = INJECTED) -> Any:
        answer = say(word, ctx.attempt)
        if raised and isinstance(answer, Exception):
            raise answer
        return answer

    @app.task(backoff=LONG, max_attempts=3)
    async def awaiting(word: str, ctx: Context = INJECTED) -> Any:
        return blocking(word, ctx)

    task = awaiting if awaits else blocking
    with app.worker():
        words = "retry", "snooze", "cancel", "fail"
        retry, snooze, cancel, fail = (task.enqueue(word) for word in words)
        assert retry.result(LIMIT) == 3
        assert snooze.result(LIMIT) == 9
        with pytest.raises(ChainCancelled, match="not wanted"):
            cancel.result(LIMIT)
        with pytest.raises(ChainFailed, match="no use"):
            fail.result(LIMIT)
    assert outcomes(app, retry.id) == ["failed", "failed", "completed"]
    assert outcomes(app, snooze.id) == ["snoozed"] * 8 + ["completed"]
    assert outcomes(app, cancel.id) == ["cancelled"]
    assert outcomes(app, fail.id) == ["failed"]
    assert (fail.refresh().state, fail.error) == (State.FAILED, "no use")


def test_retry_without_a_delay_follows_the_back_off(app: Towline) -> None:
    """O2: and uses attempts up."""

    @app.task(backoff=AT_ONCE, max_attempts=2)
    def again() -> None:
        raise Retry("try me")

    with app.worker():
        job = again.enqueue()
        with pytest.raises(ChainFailed, match="try me"):
            job.result(LIMIT)
    assert outcomes(app, job.id) == ["failed", "failed"]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class MuteFail(Fail):
    __str__ = Mute.__str__


class MuteCancel(Cancel):
    __str__ = Mute.__str__


class OddState(Exception):
    """Looks like a driver's error, and is none."""

    sqlstate: ClassVar[Any] = ["not", "hashable"]


class RaisingState(Exception):
    @property
    def sqlstate(self) -> str:
        raise RuntimeError("no state")


class Circle(Exception):
    @property
    def orig(self) -> BaseException:
        return self


class Group(BaseExceptionGroup[BaseException]):
    pass


ODD: dict[str, Callable[[], BaseException]] = {
    "no text": Mute,
    "a Fail without text": MuteFail,
    "a Cancel without text": MuteCancel,
    "10 MB": lambda: ValueError("x" * 10_000_000),
    "a Fail of 10 MB": lambda: Fail("x" * 10_000_000),
    "NUL and surrogates": lambda: ValueError("a\x00b\ud800c\udfff"),
    "a Fail with NUL and surrogates": lambda: Fail("a\x00b\ud800c\udfff"),
    "a code that is no text": OddState,
    "a code that cannot be read": RaisingState,
    "an origin that is itself": Circle,
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "a group": lambda: Group("several", [SystemExit(1), ValueError("x")]),
    "BaseException": BaseException,
    "RecursionError": RecursionError,
    "MemoryError": MemoryError,
}


@pytest.mark.parametrize("awaits", [False, True], ids=["thread", "loop"])
@pytest.mark.parametrize("odd", by_speed(list(ODD)[::2], list(ODD)))
def test_any_exception_costs_only_its_own_attempt(app: Towline, odd: str, awaits: bool) -> None:
    """O7, O8: recorded, and the one slot goes on with the next job."""

    @app.task(max_attempts=1)
    def blocking() -> None:
        raise ODD[odd]()

    @app.task(max_attempts=1)
    async def awaiting() -> None:
        raise ODD[odd]()

    @app.task
    def after() -> str:
        return "went on"

    @app.task
    async def after_awaited() -> str:
        return "went on"

    with app.worker(concurrency=1):
        job = (awaiting if awaits else blocking).enqueue()
        until(lambda: not job.refresh().state.open)
        assert (after_awaited if awaits else after).enqueue().result(LIMIT) == "went on"
    assert job.state is (State.CANCELLED if "Cancel " in odd else State.FAILED)
    (attempt,) = app.attempts(job.id)
    assert attempt.error
    assert len(attempt.error) < 100_000


def test_a_handler_that_never_ends_its_recursion(app: Towline) -> None:
    """O7: a real stack that ran out, not one that says so."""

    @app.task(max_attempts=1)
    def deeper(number: int = 0) -> int:
        return deeper(number + 1) + 1

    @app.task
    def after() -> str:
        return "went on"

    with app.worker(concurrency=1):
        job = deeper.enqueue()
        with pytest.raises(ChainFailed, match="RecursionError"):
            job.result(LIMIT)
        assert after.enqueue().result(LIMIT) == "went on"


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_task_inside_a_handler_that_exits(app: Towline, error: type[BaseException]) -> None:
    """O7: asyncio lets these out of its loop; the loop and the other handlers go on."""
    others = asyncio.Event()

    async def inner() -> None:
        raise error

    @app.task(max_attempts=1)
    async def exits() -> None:
        await asyncio.create_task(inner())

    @app.task(max_attempts=1)
    async def beside() -> str:
        await others.wait()
        return "beside"

    @app.task
    async def release() -> str:
        others.set()
        return "after"

    with app.worker():
        waiting = beside.enqueue()
        until(lambda: waiting.refresh().state is State.RUNNING)
        job = exits.enqueue()
        with pytest.raises(ChainFailed, match=error.__name__):
            job.result(LIMIT)
        assert release.enqueue().result(LIMIT) == "after"
        assert waiting.result(LIMIT) == "beside"


def test_a_handler_that_stops_its_loop(app: Towline) -> None:
    """O7: it goes on itself, and so do the others."""
    others = asyncio.Event()

    @app.task(max_attempts=1)
    async def stops() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        others.set()
        return "went on"

    @app.task(max_attempts=1)
    async def beside() -> str:
        await others.wait()
        return "beside"

    with app.worker():
        waiting = beside.enqueue()
        until(lambda: waiting.refresh().state is State.RUNNING)
        assert stops.enqueue().result(LIMIT) == "went on"
        assert waiting.result(LIMIT) == "beside"


class NoJson:
    pass


def _circle() -> Any:
    circle: list[Any] = []
    circle.append(circle)
    return circle


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "no JSON": NoJson,
    "a function": lambda: len,
    "NaN": lambda: float("nan"),
    "a key that is no text": lambda: {1: 2},
    "a lone surrogate": lambda: "\ud800",
    "a circle": _circle,
    "too large": lambda: "x" * 2_000_000,
    "a generator": lambda: (number for number in range(3)),
}


@pytest.mark.parametrize("awaits", [False, True], ids=["thread", "loop"])
@pytest.mark.parametrize("value", list(UNSTORABLE))
def test_an_output_that_cannot_be_stored_fails_at_once(
    app: Towline, value: str, awaits: bool
) -> None:
    """O4: the handler ran once, though it has attempts left, and the reason says why."""
    ran = []

    @app.task(backoff=AT_ONCE, max_attempts=5)
    def blocking() -> Any:
        ran.append(1)
        return UNSTORABLE[value]()

    @app.task(backoff=AT_ONCE, max_attempts=5)
    async def awaiting() -> Any:
        return blocking()

    with app.worker():
        job = (awaiting if awaits else blocking).enqueue()
        until(lambda: not job.refresh().state.open)
    assert job.state is State.FAILED
    assert len(ran) == 1
    assert outcomes(app, job.id) == ["failed"]
    assert "PayloadTooLarge" in (job.error or "") or "OutputError" in (job.error or "")


def test_an_output_of_another_type_than_declared_fails_at_once(app: Towline) -> None:
    """O4"""
    ran = []

    @app.task(backoff=AT_ONCE)
    def lies() -> int:
        ran.append(1)
        return "seven"  # type: ignore[return-value] # pyright: ignore[reportReturnType]

    with app.worker():
        job = lies.enqueue()
        with pytest.raises(ChainFailed, match="OutputError"):
            job.result(LIMIT)
    assert len(ran) == 1


def test_an_error_of_ours_that_a_handler_meets_is_an_ordinary_failure(app: Towline) -> None:
    """O2: only an output that cannot be stored is final; an enqueue of the handler's own is not."""

    @app.task(backoff=AT_ONCE, max_attempts=2)
    def enqueues(text: str = "") -> None:
        enqueues.enqueue("x" * 2_000_000)

    with app.worker():
        job = enqueues.enqueue()
        until(lambda: job.refresh().state is State.FAILED)
    assert outcomes(app, job.id) == ["failed", "failed"]
    assert "in enqueues" in (job.error or "")
