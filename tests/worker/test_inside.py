"""What a handler knows of its job: the attempt before, why it should stop, outputs by name."""

from __future__ import annotations

import logging
import sys
import threading
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import INJECTED, Backoff, Context, Fail, Failure, Retry, Towline
from towline.errors import BlockerError, InvalidSetting, InvalidTask
from towline.task.context import Previous


@pytest.mark.parametrize("awaits", [False, True])
def test_O2_a_handler_is_told_how_the_attempt_before_it_ended(app: Towline, awaits: bool) -> None:
    seen: list[Previous | None] = []

    def note(previous: Previous | None) -> int:
        seen.append(previous)
        if previous is None:
            raise ValueError("the first time")
        return previous.number

    def handle(ctx: Context = INJECTED) -> int:
        return note(ctx.previous)

    async def ahandle(ctx: Context = INJECTED) -> int:
        return note(await ctx.aprevious())

    task = app.task(backoff=Backoff(first=0))(ahandle if awaits else handle)
    with app.worker():
        assert task.enqueue().result(LIMIT) == 1
    first, second = seen
    assert first is None
    assert second is not None
    assert (second.outcome, second.error_type) == ("failed", "builtins.ValueError")
    assert "the first time" in (second.error or "")
    assert second.started_at is not None
    assert second.ended_at >= second.started_at


@pytest.mark.parametrize("why", ["cancelled", "timeout", "stopping", "lost"])
def test_L10_a_handler_is_told_why_it_should_stop(app: Towline, why: str) -> None:
    gate, said = Gate(), threading.Event()
    words: list[str | None] = []

    @app.task(timeout=0.2 if why == "timeout" else None, max_attempts=1)
    def handle(ctx: Context = INJECTED) -> None:
        words.append(ctx.stopped_for)
        gate.pass_by()
        assert ctx.stop.wait(LIMIT)
        words.append(ctx.stopped_for)
        said.set()

    job = handle.enqueue()
    worker = app.worker(grace=1.0)
    with worker:
        gate.wait_inside()
        if why == "cancelled":
            app.cancel(job.id)
        elif why == "lost":
            app.runner.run(app.runner.store.sweep(gone=[worker.pump.turns.worker]))
        elif why == "stopping":
            worker.stop(wait=False)
        assert said.wait(LIMIT)
    assert words[:2] == [None, why]


def test_B9_a_parameter_takes_the_output_of_the_blocker_of_its_name(app: Towline) -> None:
    @app.task
    def size(page: int) -> int:
        return page * 10

    @app.task
    def bad() -> int:
        raise Fail("no")

    @app.task
    def publish(
        album: int, sizes: tuple[int, str] = INJECTED, *, other: object = INJECTED,
        ctx: Context = INJECTED,
    ) -> str:  # fmt: skip
        return f"{album} {sizes} {type(other).__name__} {len(ctx.blockers)}"

    @app.task
    def pair() -> list[object]:
        return [1, "a"]

    with pytest.raises(BlockerError, match=r"publish takes the output of a blocker named sizes"):
        publish.enqueue(7)
    with pytest.raises(BlockerError, match=r"named other: publish.using\(after=\{'other': …\}\)"):
        publish.using(after={"sizes": pair.enqueue()}).enqueue(7)
    after = {"sizes": pair.call(), "other": bad.call()}
    job = publish.using(after=after, on_blocker_failure="run").enqueue(7)
    assert job.arguments == '{"album":7}'
    with app.worker():
        assert job.result(LIMIT) == f"7 (1, 'a') {Failure.__name__} 2"


def test_B9_a_parameter_that_the_worker_fills_must_be_passable_by_keyword(app: Towline) -> None:
    @app.task
    def task(sizes: list[int] = INJECTED, *more: int) -> None: ...

    with pytest.raises(InvalidTask, match="parameter 'sizes' must be passable by keyword"):
        task.enqueue()


def test_O2_retry_at_a_time_and_a_back_off_of_ones_own(
    app: Towline, trouble: list[logging.LogRecord]
) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)

    @app.task
    def later() -> None:
        raise Retry(at=at)

    failures: list[int] = []

    def growing(attempt: int) -> int:
        failures.append(attempt)
        return 3600 * attempt

    @app.task(backoff=growing)
    def own() -> None:
        raise ValueError

    @app.task(backoff=lambda attempt: 1 / 0)
    def broken() -> None:
        raise ValueError

    @app.task(backoff=lambda attempt: sys.exit())
    def leaving() -> None:
        raise ValueError

    jobs = [task.enqueue() for task in (later, own, broken, leaving)]
    with app.worker():
        until(lambda: all(job.refresh().error for job in jobs))
    assert [str(job.state) for job in jobs[:2]] == ["scheduled"] * 2
    assert [outcomes(app, job.id)[0] for job in jobs[2:]] == ["failed"] * 2
    assert any("the usual one is taken" in record.getMessage() for record in trouble)
    assert jobs[0].run_at is not None
    assert jobs[1].run_at is not None
    assert abs(jobs[0].run_at - at) < timedelta(minutes=5)
    assert failures == [1]
    assert jobs[1].run_at > datetime.now(UTC) + timedelta(minutes=55)
    with pytest.raises(InvalidSetting, match=r"say Retry\(delay=\) or Retry\(at=\), not both"):
        Retry(delay=1, at=at)
    with pytest.raises(InvalidSetting, match=r"Retry\(at=\) is a datetime with a time zone"):
        Retry(at=at.replace(tzinfo=None))
    with pytest.raises(InvalidSetting, match="backoff= is a Backoff, or a function"):
        app.task(name="x", backoff=5)(later.function)  # type: ignore[call-overload] # pyright: ignore[reportArgumentType]


class Size(msgspec.Struct):
    width: int


def test_B9_a_parameter_may_say_that_its_blocker_may_have_failed(app: Towline) -> None:
    @app.task(max_attempts=1)
    def measure(good: bool) -> Size:
        if not good:
            raise Fail("no picture")
        return Size(3)

    @app.task
    def publish(one: Size | Failure = INJECTED) -> str:
        return "failed" if isinstance(one, Failure) else str(one.width)

    jobs = [
        publish.using(after={"one": measure.enqueue(good)}, on_blocker_failure="run").enqueue()
        for good in (True, False)
    ]
    with app.worker():
        assert [job.result(LIMIT) for job in jobs] == ["3", "failed"]
