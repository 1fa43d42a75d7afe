"""O10: an attempt says which class its error is of, with its module, beside the text of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.until import until
from tests.worker.gate import LIMIT
from towline import Cancel, ChainFailed, Fail, Retry, Towline


class CardRefused(Exception):
    class ForGood(Exception):
        pass


class Moved(Exception):
    __module__ = "no\ud800where"


class Unnamed(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        raise RuntimeError("no module")


class Nameless(Exception, metaclass=Unnamed):
    pass


CASES: list[tuple[BaseException, str | None]] = [
    (ValueError("x"), "builtins.ValueError"),
    (CardRefused(), f"{__name__}.CardRefused"),
    (CardRefused.ForGood(), f"{__name__}.CardRefused.ForGood"),
    (Fail("no use"), "towline.Fail"),
    (Retry("later"), "towline.Retry"),
    (Cancel("not wanted"), None),
    (Moved(), "no?where.Moved"),
    (Nameless(), None),
    (type("x" * 1000, (Exception,), {"__module__": "m"})(), "m." + "x" * 498),
]


@pytest.mark.parametrize("awaits", [False, True], ids=["thread", "loop"])
def test_the_class_of_what_a_handler_raises(app: Towline, awaits: bool) -> None:
    @app.task(max_attempts=1)
    def blocking(number: int) -> None:
        raise CASES[number][0]

    @app.task(max_attempts=1)
    async def awaiting(number: int) -> None:
        raise CASES[number][0]

    task = awaiting if awaits else blocking
    with app.worker():
        jobs = [task.enqueue(number) for number in range(len(CASES))]
        until(lambda: not any(job.refresh().state.open for job in jobs))
    found = [attempt.error_type for job in jobs for attempt in app.attempts(job.id)]
    assert found == [name for _, name in CASES]


def test_an_attempt_that_raised_nothing_has_no_class(app: Towline) -> None:
    @app.task
    def fine() -> int:
        return 1

    @app.task(timeout=0.05, max_attempts=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    with app.worker():
        job, late = fine.enqueue(), slow.enqueue()
        assert job.result(LIMIT) == 1
        with pytest.raises(ChainFailed, match="timeout"):
            late.result(LIMIT)
    (attempt,) = app.attempts(job.id)
    assert attempt.error_type is None
    (attempt,) = app.attempts(late.id)
    assert attempt.error_type == "asyncio.exceptions.CancelledError"


def test_what_does_not_fit_a_task_is_named_by_the_package(app: Towline) -> None:
    @app.task(max_attempts=1)
    def odd() -> Any:
        return object()

    with app.worker():
        job = odd.enqueue()
        with pytest.raises(ChainFailed):
            job.result(LIMIT)
    (attempt,) = app.attempts(job.id)
    assert attempt.error_type is not None
    assert attempt.error_type.startswith("towline.")
    assert attempt.error_type.count(".") == 1


def test_the_log_says_the_bare_name(app: Towline, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(max_attempts=1)
    def broken() -> None:
        raise CardRefused

    with caplog.at_level(logging.INFO, "towline"), app.worker():
        job = broken.enqueue()
        with pytest.raises(ChainFailed):
            job.result(LIMIT)
    assert [r.getMessage() for r in caplog.records if "has failed" in r.getMessage()] == [
        f"attempt 1 of job {job.id} (broken): CardRefused; the job has failed"
    ]
