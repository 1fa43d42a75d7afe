"""In an inline block enqueueing runs the job, but never what is not committed."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from towline import Next, State, Towline
from towline.testing import inline


def test_a_job_has_run_when_enqueue_returns(app: Towline) -> None:
    @app.task
    def first(n: int) -> Next[int]:
        return second.then(n + 1)

    @app.task
    def second(n: int) -> int:
        return n * 2

    with inline(app):
        job = first.enqueue(1)
        assert job.state is State.COMPLETED
        assert job.result(timeout=0) == 4
    assert first.enqueue(1).state is State.PENDING


def test_a_handler_that_enqueues_does_not_run_inside_itself(app: Towline) -> None:
    order: list[str] = []

    @app.task
    def outer() -> None:
        inner.enqueue()
        order.append("outer")

    @app.task
    def inner() -> None:
        order.append("inner")

    with inline(app):
        outer.enqueue()
    assert order == ["outer", "inner"]


def test_what_is_not_committed_does_not_run(app: Towline) -> None:
    """E1"""
    seen: list[int] = []

    @app.task
    def note(n: int) -> None:
        seen.append(n)

    path = Path(app.url.removeprefix("sqlite:///"))
    connection = sqlite3.connect(path)
    with inline(app):
        note.using(on=connection).enqueue(1)
        connection.rollback()
        note.using(on=connection).enqueue(2)
        connection.commit()
        assert seen == []
        note.enqueue(3)
        assert seen == [2, 3]
        note.using(on=connection).enqueue(4)
        connection.commit()
    assert seen == [2, 3, 4]
    connection.close()


def test_an_error_comes_out_of_enqueue(app: Towline) -> None:
    @app.task
    def bad() -> None:
        raise ValueError("no")

    with inline(app), pytest.raises(ValueError, match="no"):
        bad.enqueue()
    with inline(app, raising=False):
        assert bad.enqueue().state is State.SCHEDULED


def test_the_awaiting_face_runs_it_too(app: Towline) -> None:
    @app.task
    async def double(n: int) -> int:
        return n * 2

    async def test() -> None:
        with inline(app):
            job = await double.aenqueue(4)
            assert job.state is State.COMPLETED
            assert await job.aresult(timeout=0) == 8

    asyncio.run(test())
