"""Tasks by name, and the defaults of an app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from towline import Backoff, Defaults, InvalidArguments, Tasks, Towline
from towline.errors import InvalidSetting
from towline.testing import drain


def test_X1_a_task_is_enqueued_by_name_and_checked_by_who_knows_it(
    app: Towline, make_app: Callable[..., Towline]
) -> None:
    elsewhere = app.named("other.task")
    job = elsewhere.using(priority=3, queue="mail", key="k").enqueue(to="a@b.c", number=2)
    assert (job.task, job.priority, job.queue, job.key) == ("other.task", 3, "mail", "k")
    assert job.arguments == '{"to":"a@b.c","number":2}'
    assert asyncio.run(elsewhere.aenqueue(to="x", number="no")).created
    behind, _ = app.enqueue_many(
        [elsewhere.using(after=[job]).call(to="y", number=1), elsewhere.call()]
    )
    assert behind.state == "blocked"
    with pytest.raises(InvalidArguments, match=r"other\.task is known by its name only"):
        elsewhere.enqueue("a@b.c")
    knows = make_app(clock=app.settings.engine.clock)

    @knows.task(name="other.task", max_attempts=1)
    def send(to: str, number: int) -> str:
        return to * number

    drain(knows, raising=False)
    assert app.job(job.id).output == "a@b.ca@b.c"
    assert app.job(behind.id).output == "y"
    bad = [each for each in app.jobs(task="other.task") if each.error]
    assert len(bad) == 2
    assert all("do not fit" in (each.error or "") for each in bad)


def test_the_defaults_of_an_app_are_those_of_tasks_that_do_not_say_their_own(
    make_app: Callable[..., Towline],
) -> None:
    backoff = Backoff(first=7)
    app = make_app(defaults=Defaults(timeout=timedelta(minutes=1), max_attempts=9, backoff=backoff))
    later = Tasks()

    @later.task
    def plain() -> None: ...

    @app.task(timeout=5, max_attempts=2, backoff=lambda attempt: 3.0)
    def own() -> None: ...

    assert (plain.max_attempts, plain.timeout) == (5, None)
    app.include(later)
    assert (plain.max_attempts, plain.timeout, plain.backoff) == (9, timedelta(minutes=1), backoff)
    assert (own.max_attempts, own.timeout, own.backoff.delay(1)) == (2, 5, 3.0)
    job = plain.enqueue()
    assert job.max_attempts == 9
    for wrong in ({"max_attempts": 0}, {"timeout": -1}, {"backoff": 5}):
        with pytest.raises(InvalidSetting):
            Defaults(**wrong)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_G5_the_name_of_a_task_of_this_app_stands_for_it(app: Towline) -> None:
    @app.task(queue="mail", lane="tenant", priority=4)
    def send(tenant: str, number: int = 1) -> str:
        return tenant * number

    job = app.named("send").enqueue(tenant="acme")
    assert (job.queue, job.lane, job.priority) == ("mail", "acme", 4)
    with pytest.raises(InvalidArguments):
        app.named("send").enqueue(tenant="acme", number="no")
