"""Y1: a worker starts nothing that comes too late, wherever it waited."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import ChainCancelled, Towline
from towline.events.kinds import JobExpired
from towline.worker.claimed_ahead import ClaimedAhead


def test_Y1_a_job_that_is_late_is_cancelled_and_the_next_one_runs(app: Towline) -> None:
    ran: list[str] = []
    told: list[JobExpired] = []
    heard = threading.Event()

    @app.task
    def note(name: str) -> None:
        ran.append(name)

    def expired(event: object) -> None:
        assert isinstance(event, JobExpired)
        told.append(event)
        heard.set()

    app.runner.events.subscribe(expired, [JobExpired.name])
    late = note.using(expires=0.001).enqueue("late")
    past = note.using(expires=datetime.now(UTC) - timedelta(days=1)).enqueue("past")
    good = note.using(expires=timedelta(hours=1)).enqueue("in time")
    assert good.expires_at is not None
    assert good.expires_at - good.created_at == timedelta(hours=1)
    until(lambda: datetime.now(UTC) > late.created_at + timedelta(seconds=0.01))
    with app.worker(concurrency=1):
        good.result(LIMIT)
        for job in (late, past):
            with pytest.raises(ChainCancelled, match="not started before 20"):
                job.result(LIMIT)
            assert (job.refresh().started_at, job.attempt) == (None, 1)
        assert heard.wait(LIMIT)
    assert ran == ["in time"]
    assert sum(event.count for event in told) == 2


@pytest.mark.parametrize("awaits", [False, True])
def test_Y1_what_was_claimed_ahead_is_looked_at_when_it_would_begin(
    app: Towline, monkeypatch: pytest.MonkeyPatch, awaits: bool
) -> None:
    """It was in time when it was claimed, and waits behind a slow one."""
    monkeypatch.setattr(ClaimedAhead, "waiting_too_long", lambda self, now: ())
    gate = Gate()
    ran: list[str] = []

    def handle(wait: bool) -> None:
        gate.enter() if wait else ran.append("late")

    async def ahandle(wait: bool) -> None:
        await asyncio.to_thread(handle, wait)

    task = app.task(ahandle if awaits else handle)
    blocking = task.enqueue(True)
    late = task.using(expires=1.0).enqueue(False)
    with app.worker(concurrency=1, prefetch=4):
        gate.wait_inside()
        # What the time is there is known as well as a turn is short: not to a millisecond.
        until(lambda: datetime.now(UTC) > late.created_at + timedelta(seconds=3))
        gate.open()
        blocking.result(LIMIT)
        with pytest.raises(ChainCancelled, match="not started before"):
            late.result(LIMIT)
    assert ran == []
    assert outcomes(app, late.id) == ["cancelled"]
    assert app.attempts(late.id)[0].started_at is None


def test_Y1_a_retry_that_comes_too_late_is_not_made(make_app: Callable[..., Towline]) -> None:
    app = make_app()
    ran: list[int] = []

    @app.task
    def fail() -> None:
        ran.append(1)
        raise ValueError("boom")

    job = fail.using(expires=1.0).enqueue()
    with app.worker(), pytest.raises(ChainCancelled, match="not started before"):
        job.result(LIMIT)
    assert outcomes(app, job.id)[-1] == "cancelled"
    assert len(ran) == len(outcomes(app, job.id)) - 1
