"""T5: a span tells what was recorded: refused ends say so, and who cannot tell has one, too."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from opentelemetry.trace import StatusCode

from tests.telemetry.collected import Collected, attributes, ids, links
from tests.until import LIMIT, until
from towline import INJECTED, ChainCancelled, Context, Next, Towline
from towline.times import MICRO
from towline.worker import deadlines
from towline.worker.identity import namespace

NOBODY = 2**22 + 1  # no process has this number


@pytest.mark.each_engine
def test_T5_an_attempt_whose_worker_was_killed_has_a_span(
    app: Towline, collected: Collected
) -> None:
    """Made by who swept it, from the claim to now."""
    collected.instrument(app)

    @app.task
    def one() -> int:
        return 1

    job = one.enqueue()
    run, store = app.runner.run, app.runner.store
    dead = run(
        store.register(
            "killed", host=socket.gethostname(), pid=NOBODY, birth=f"{namespace()}-1", version="0",
            queues=["default"], concurrency=1, lease=3600 * MICRO,
        )
    )  # fmt: skip
    ((held),) = run(store.claim(dead, ["default"], 1))
    with app.worker(name="w2"):
        (lost,) = collected.wait_for("run one")
        app.run_now(job.id)
        assert job.result(LIMIT) == 1
        _, again = collected.wait_for("run one", 2)
    said = attributes(lost)
    assert (said["towline.outcome"], said["towline.worker"]) == ("lost", "killed")
    assert (said["towline.attempt"], said["towline.accepted"]) == (1, True)
    assert said["error.type"] == "lost"
    assert lost.status.status_code is StatusCode.ERROR
    assert lost.start_time == held.claimed_at * 1000
    assert lost.end_time is not None
    assert lost.end_time <= time.time_ns()
    created = ids(collected.span("enqueue one"))
    assert links(lost) == links(again) == [created]
    assert attributes(again)["towline.attempt"] == 2


@pytest.mark.each_engine
def test_T5_an_end_that_was_refused_says_so(app: Towline, collected: Collected) -> None:
    collected.instrument(app)
    inside, go = threading.Event(), threading.Event()

    @app.task
    def one() -> int:
        inside.set()
        go.wait(LIMIT)
        return 1

    job = one.enqueue()
    with app.worker():
        assert inside.wait(LIMIT)
        app.cancel(job.id)
        with pytest.raises(ChainCancelled):
            job.result(LIMIT)
        go.set()
        (span,) = collected.wait_for("run one")
    assert attributes(span)["towline.accepted"] is False
    assert attributes(span)["towline.outcome"] == "completed"


def test_T5_one_that_stops_when_it_is_told_to_has_a_span(
    app: Towline, collected: Collected
) -> None:
    collected.instrument(app)
    inside = threading.Event()

    @app.task
    def polite(ctx: Context = INJECTED) -> None:
        inside.set()
        ctx.stop.wait(LIMIT)
        raise InterruptedError

    job = polite.enqueue()
    with app.worker():
        assert inside.wait(LIMIT)
        app.cancel(job.id)
        (span,) = collected.wait_for("run polite")
    said = attributes(span)
    assert (said["towline.accepted"], said["towline.outcome"]) == (False, "failed")
    assert said["error.type"] == "builtins.InterruptedError"


def test_T5_one_that_does_not_stop_has_a_span(
    app: Towline, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlines, "STOP_GRACE", 0.1)
    collected.instrument(app)
    inside, go = threading.Event(), threading.Event()

    @app.task
    def stubborn() -> None:
        inside.set()
        go.wait(LIMIT)

    @app.task(timeout=0.1, max_attempts=1)
    def late() -> None:
        go.wait(LIMIT)

    job = stubborn.enqueue()
    with app.worker():
        assert inside.wait(LIMIT)
        app.cancel(job.id)
        late.enqueue()
        (cancelled,) = collected.wait_for("run stubborn")
        (timed_out,) = collected.wait_for("run late")
        go.set()
    assert attributes(cancelled)["towline.accepted"] is False
    assert attributes(timed_out)["towline.outcome"] == "timeout"
    assert attributes(timed_out)["error.type"] == "timeout"
    assert attributes(timed_out)["towline.accepted"] is True


def test_T5_an_end_that_cannot_be_stored_is_a_failure(app: Towline, collected: Collected) -> None:
    """What was recorded, not what the handler returned."""
    collected.instrument(app)

    @app.task
    def one(ctx: Context = INJECTED) -> Next[None]:
        return one.using(after=[10**12]).then()  # no such chain

    one.enqueue()
    with app.worker():
        (span,) = collected.wait_for("run one")
        assert until(lambda: app.job(1).state == "failed")
    assert attributes(span)["towline.outcome"] == "failed"
    assert attributes(span)["error.type"] == "towline.BlockerError"


def test_T5_a_worker_that_stops_ends_its_spans(app: Towline, collected: Collected) -> None:
    collected.instrument(app)
    inside = threading.Event()

    @app.task
    async def sleeps() -> None:
        import asyncio

        inside.set()
        await asyncio.sleep(LIMIT)

    sleeps.enqueue()
    worker = app.worker().start()
    assert inside.wait(LIMIT)
    worker.stop(now=True)
    assert attributes(collected.span("run sleeps"))["towline.outcome"] == "released"
