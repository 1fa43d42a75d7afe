"""What a handler logs by structlog says which job it belongs to, and no other line does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from tests.integrations import structlog_tasks
from towline import Towline
from towline.integrations.structlog import bind
from towline.testing import drain, isolated


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    capture = LogCapture()
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, capture])
    yield capture.entries
    structlog.reset_defaults()


@pytest.fixture
def shop() -> Iterator[Towline]:
    with isolated() as app:
        bind(app)
        bind(app)
        yield app


def test_lines_of_a_handler_have_its_job_and_those_after_it_do_not(
    shop: Towline, lines: list[Any]
) -> None:
    @shop.task(queue="mail")
    def blocking(n: int) -> None:
        structlog.get_logger().info("in a thread", n=n)

    @shop.task
    async def awaiting(n: int) -> None:
        await asyncio.sleep(0.01)
        structlog.get_logger().info("on the loop", n=n)

    jobs = [blocking.enqueue(1), awaiting.enqueue(2), awaiting.enqueue(3)]
    with shop.worker(concurrency=3):
        for job in jobs:
            job.result(30)
    structlog.get_logger().info("outside")
    outside = lines.pop()
    assert outside == {"event": "outside", "log_level": "info"}
    found = {line["n"]: line for line in lines}
    for n, job in enumerate(jobs, 1):
        assert found[n]["job"] == found[n]["chain"] == job.id
        assert (found[n]["task"], found[n]["attempt"]) == (job.task, 1)
    assert found[1]["queue"] == "mail"


def test_a_handler_in_a_process_has_them_too(tmp_path: Path) -> None:
    app = structlog_tasks.app
    app.use(f"sqlite:///{tmp_path}/shop.db")
    job = structlog_tasks.bound.enqueue()
    with app.worker(concurrency=1):
        assert job.result(60) == {
            "job": job.id, "chain": job.id, "task": "bound", "queue": "default", "attempt": 1,
        }  # fmt: skip
    app.close()


def test_a_failure_unbinds_too(shop: Towline, lines: list[Any]) -> None:
    @shop.task(max_attempts=1)
    def fails() -> None:
        structlog.get_logger().info("before")
        raise ZeroDivisionError

    fails.enqueue()
    drain(shop, raising=False)
    structlog.get_logger().info("after")
    assert [("job" in line) for line in lines] == [True, False]


def test_binding_twice_is_binding_once(shop: Towline) -> None:
    assert len(shop.middleware) == 1
