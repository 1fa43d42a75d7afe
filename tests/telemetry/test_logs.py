"""Fields of log lines: those of ours from one list, those of the application by a filter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from tests.until import LIMIT, until
from towline import INJECTED, Context, Towline
from towline.logs import FIELDS, InAttempt

log = logging.getLogger("shop")
USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.addFilter(InAttempt())
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def of(self, text: str) -> list[tuple[object, ...]]:
        return [
            tuple(vars(record)[name] for name in ("job", "chain", "task", "attempt"))
            for record in self.records
            if record.getMessage() == text
        ]


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    loggers = [logging.getLogger(name) for name in ("shop", "towline")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    yield handler
    for logger in loggers:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def test_lines_of_handlers_say_of_which_attempt_they_are(
    make_app: Callable[..., Towline], lines: Lines
) -> None:
    app = make_app()

    @app.task
    def plain(n: int) -> None:
        log.info("plain")

    @app.task
    async def awaiting(n: int) -> None:
        log.info("awaiting", extra={"job": "its own"})

    first, second = plain.enqueue(1), awaiting.enqueue(2)
    log.info("outside")
    app.worker(drain=True).run()
    assert lines.of("outside") == [(None, None, None, None)]
    assert lines.of("plain") == [(first.id, first.id, "plain", 1)]
    assert lines.of("awaiting") == [("its own", second.id, "awaiting", 1)]


def test_a_format_may_name_them(lines: Lines) -> None:
    record = logging.makeLogRecord({"msg": "hello"})
    assert InAttempt().filter(record)
    assert logging.Formatter("%(message)s %(job)s").format(record) == "hello None"


def test_our_lines_have_fields_of_the_list_only(
    make_app: Callable[..., Towline], lines: Lines
) -> None:
    """No line about a failure of a handler is an error with a traceback, which would be reported
    a second time."""
    app = make_app()

    @app.task(max_attempts=2, backoff=lambda attempt: 0)
    def bad(ctx: Context = INJECTED) -> None:
        raise ValueError("no")

    job = bad.enqueue()
    with app.worker(name="one"):
        until(lambda: not app.job(job.id).state.open)
    assert app.runner.events.flush(LIMIT)
    ours = [record for record in lines.records if record.name == "towline.worker"]
    for record in ours:
        assert set(vars(record)) - USUAL <= set(FIELDS), record.getMessage()
        assert record.exc_info is None
        assert record.levelno < logging.ERROR
    (failed,) = [vars(r) for r in ours if "the job has failed" in r.getMessage()]
    assert failed["levelname"] == "WARNING"
    known = {name: failed[name] for name in FIELDS if name in failed and name != "duration"}
    assert known == {
        "event": "attempt.ended", "job": job.id, "chain": job.id, "task": "bad",
        "queue": "default", "attempt": 2, "worker": "one", "outcome": "failed",
        "error_type": "builtins.ValueError",
    }  # fmt: skip
