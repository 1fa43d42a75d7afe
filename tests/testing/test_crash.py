"""Crash points: what died is found, recorded as lost, and run again."""

from __future__ import annotations

import pytest

from towline import INJECTED, Context, Outcome, State, Towline
from towline.errors import InvalidSetting
from towline.testing import Clock, Crash, crash_at, drain


def test_a_worker_that_dies_before_the_end_is_stored(app: Towline, hand: Clock) -> None:
    """L4"""
    sent: list[int] = []

    @app.task
    def send(ctx: Context = INJECTED) -> str:
        sent.append(ctx.attempt)
        return "sent"

    job = send.enqueue()
    with crash_at(app, "finish"):
        drain(app)
        pytest.fail("the crash ends the block")
    assert sent == [1]
    assert job.refresh().state is State.SCHEDULED
    assert [attempt.outcome for attempt in app.attempts(job.id)] == [Outcome.LOST]
    assert app.workers() == []
    assert drain(app) == 0
    assert drain(app, advance=True) == 1
    assert sent == [1, 2]
    assert job.result(timeout=0) == "sent"


def test_a_worker_that_dies_after_it_has_nothing_to_lose(app: Towline) -> None:
    """O1"""

    @app.task
    def send() -> str:
        return "sent"

    job = send.enqueue()
    with crash_at(app, "finish", before=False):
        drain(app)
    assert job.result(timeout=0) == "sent"
    assert [attempt.outcome for attempt in app.attempts(job.id)] == [Outcome.COMPLETED]


def test_a_worker_that_dies_with_a_claim(app: Towline) -> None:
    """L4: the handler never ran, and the job comes back."""
    ran: list[int] = []

    @app.task
    def send(ctx: Context = INJECTED) -> None:
        ran.append(ctx.attempt)

    send.enqueue()
    with crash_at(app, "claim", before=False):
        drain(app)
    assert ran == []
    drain(app, advance=True)
    assert ran == [2]


def test_a_job_that_kills_its_worker_every_time_ends(app: Towline) -> None:
    """L4"""

    @app.task
    def bad() -> None: ...

    job = bad.enqueue()
    for _ in range(3):
        with crash_at(app, "finish"):
            drain(app, advance=True)
    assert job.refresh().state is State.FAILED
    assert "crash limit" in (job.error or "")


def test_a_caller_that_dies_around_an_enqueue(app: Towline) -> None:
    """E9: the key finds what an unknown outcome left behind."""

    @app.task
    def order(n: int) -> None: ...

    with crash_at(app, "enqueue"):
        order.using(key="7").enqueue(7)
    assert list(app.jobs()) == []
    with crash_at(app, "enqueue", before=False):
        order.using(key="7").enqueue(7)
    assert len(app.jobs()) == 1
    assert order.using(key="7").enqueue(7).created is False


def test_a_crash_inside_a_handler_is_no_failure_of_it(app: Towline) -> None:
    @app.task
    def outer() -> None:
        inner.enqueue()

    @app.task
    def inner() -> None: ...

    job = outer.enqueue()
    with crash_at(app, "enqueue"):
        drain(app)
    assert [attempt.outcome for attempt in app.attempts(job.id)] == [Outcome.LOST]


def test_a_crash_that_did_not_happen_is_an_error(app: Towline) -> None:
    with pytest.raises(AssertionError, match="nothing came to finish"):
        with crash_at(app, "finish"):
            drain(app)


def test_a_point_that_does_not_exist_is_refused(app: Towline) -> None:
    with pytest.raises(InvalidSetting, match="'finnish' is no operation"):
        with crash_at(app, "finnish"):
            pass


def test_other_errors_pass_and_the_app_is_whole_again(app: Towline) -> None:
    with pytest.raises(ZeroDivisionError), crash_at(app, "finish"):
        raise ZeroDivisionError
    assert not {"run", "arun"} & app.__dict__.keys()
    assert not issubclass(Crash, Exception)
