"""What a worker records and what it says: findings A8d, A8e, A20, A27, B7, B8, B10, B12, and a
drain that waits for a retry."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.database import Database
from tests.kit import SECOND, Clock
from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import (
    INJECTED,
    Backoff,
    ChainFailed,
    Context,
    Fail,
    Retry,
    State,
    Towline,
)
from towline.app.answers import Progress
from towline.exit_codes import OK

AT_ONCE = Backoff(first=0)


class Lines(logging.Handler):
    """What the worker logs, as a terminal or a file would get it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))

    @property
    def text(self) -> str:
        return "\n".join(self.said)


@pytest.fixture
def lines() -> Iterator[Lines]:
    logger = logging.getLogger("towline.worker")
    lines, level = Lines(), logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.DEBUG)
    yield lines
    logger.removeHandler(lines)
    logger.setLevel(level)


@pytest.mark.parametrize("how", ["returns", "raises", "continues", "in a transaction"])
def test_the_last_progress_is_kept(app: Towline, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding B7: with the end of the attempt, though it was said just before and nobody has
    written it meanwhile."""
    monkeypatch.setattr("towline.worker.duties.WriteProgress.at", float("inf"))

    @app.task(max_attempts=1)
    def last() -> None:
        pass

    @app.task(max_attempts=1)
    def work(ctx: Context = INJECTED) -> Any:
        for number in range(10):
            ctx.progress(number / 10, f"step {number}")
        ctx.progress(1.0, "all")
        if how == "raises":
            raise ValueError
        if how == "in a transaction":
            with ctx.transaction() as tx:
                tx.complete(None)
        return last.then() if how == "continues" else None

    with app.worker():
        job = work.enqueue()
        if how == "raises":
            with pytest.raises(ChainFailed):
                job.result(LIMIT)
        else:
            job.result(LIMIT)
    assert app.job(job.id).progress == Progress(1.0, "all")


def test_the_log_says_what_kind_of_error_and_not_what_it_says(
    app: Towline, lines: Lines, trouble: list[logging.LogRecord]
) -> None:
    """Finding A20: nothing private, and nothing that a terminal obeys."""
    secrets = ("4111 1111 1111 1111", "hunter2", "\x1b]0;owned\x07\x1b[2J", "\nsecond line")

    @app.task(max_attempts=1)
    def raises(text: str) -> None:
        raise ValueError(text)

    @app.task
    def fails(text: str) -> Any:
        raise Fail(text)

    @app.task
    def returns_fail(text: str) -> Any:
        return Fail(text)

    @app.task(max_attempts=2)
    def retries(text: str) -> Any:
        raise Retry(text, delay=0)

    tasks = (raises, fails, returns_fail, retries)
    with app.worker():
        jobs = [task.enqueue(text) for task in tasks for text in secrets]
        for job in jobs:
            with pytest.raises(ChainFailed):
                job.result(LIMIT)
    assert "ValueError; the job has failed" in lines.text
    assert "Fail; the job has failed" in lines.text
    assert "Retry; again in" in lines.text
    for text in (*secrets, "\x1b", "second line"):
        assert text not in lines.text
    error = app.attempts(jobs[1].id)[0].error or ""
    assert "hunter2" in error  # there it is looked at on purpose


@pytest.mark.usefixtures("sqlite")
def test_a_lost_attempt_is_not_called_a_failed_job(tmp_path: Any, url: str) -> None:
    """Findings A27, B8: a lost attempt is no failure: with max_attempts=1 it comes back too."""
    import subprocess
    import sys

    program = tmp_path / "dies.py"
    program.write_text(
        "import logging, os, sys\n"
        "from towline import INJECTED, Context, Towline\n"
        "app = Towline(sys.argv[1])\n"
        "@app.task(max_attempts=1, run_in='process')\n"
        "def die(ctx: Context = INJECTED) -> str:\n"
        "    if ctx.attempt == 1:\n"
        "        os._exit(7)\n"
        "    return 'came back'\n"
        "if __name__ == '__main__':\n"
        "    logging.basicConfig(level=logging.INFO)\n"
        "    job = die.enqueue()\n"
        "    with app.worker():\n"
        "        while not app.attempts(job.id) or app.attempts(job.id)[0].outcome is None:\n"
        "            pass\n"
        "        if str(job.refresh().state) == 'scheduled':\n"
        "            app.run_now(job.id)\n"
        "        print(job.result(60))\n"
    )
    done = subprocess.run(
        [sys.executable, program, url], capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.stdout == "came back\n", done.stderr
    assert "lost; again in" in done.stderr
    assert "the job has failed" not in done.stderr


def test_what_ended_is_counted_however_it_did(
    app: Towline, lines: Lines, trouble: list[logging.LogRecord]
) -> None:
    """Finding B10: by a value, in a transaction, by a failure."""

    @app.task
    def plain() -> None:
        pass

    @app.task
    def books(ctx: Context = INJECTED) -> None:
        with ctx.transaction() as tx:
            tx.complete(None)

    @app.task(max_attempts=1)
    def broken() -> None:
        raise ValueError

    calls = [plain.call(), plain.call(), books.call(), books.call(), books.call(), broken.call()]
    app.enqueue_many(calls)
    assert app.worker(drain=True).run() == OK
    assert "has stopped: 6 attempts ended" in lines.text
    lines.said.clear()
    books.enqueue()
    assert app.worker(drain=True).run() == OK
    assert "has stopped: 1 attempt ended" in lines.text


def test_arguments_that_do_not_fit_wait_for_a_deployment(
    make_app: Callable[..., Towline], database: Database, clock: Clock
) -> None:
    """Finding B12: 30 s, 60 s, 120 s … instead of five tries in fifteen seconds; a worker that
    understands them comes in time."""
    app = make_app(clock=clock)

    @app.task(backoff=AT_ONCE)
    def work(a: int) -> int:
        return a

    job = work.enqueue(1)
    more = json.dumps({"a": 1, "b": 2})
    database.rows("UPDATE towline_job SET arguments = ? WHERE id = ?", more, job.id)
    for number, pause in enumerate((30, 60, 120), start=1):
        before = clock.time
        with app.worker():
            until(lambda: outcomes(app, job.id) == ["failed"] * number)  # noqa: B023
        assert job.refresh().state is State.SCHEDULED
        assert job.run_at is not None
        assert job.run_at.timestamp() * SECOND >= before + pause * SECOND
        clock.advance(pause + 1)
    new = make_app(clock=clock)

    @new.task(name="work")
    def as_it_is_now(a: int, b: int) -> int:
        return a + b

    with new.worker():
        assert job.result(LIMIT) == 3


def test_a_drain_waits_for_a_retry_that_is_due_in_a_moment(app: Towline) -> None:
    """It would be left for nobody; one that is due later stays."""

    @app.task(max_attempts=3, backoff=Backoff(first=0.2, factor=1))
    def shaky(ctx: Context = INJECTED) -> int:
        if ctx.attempt < 3:
            raise ValueError
        return ctx.attempt

    @app.task(max_attempts=2, backoff=Backoff(first=3000))
    def slow() -> None:
        raise ValueError

    quickly, later = shaky.enqueue(), slow.enqueue()
    assert app.worker(drain=True).run() == OK
    assert quickly.result(0) == 3
    assert later.refresh().state is State.SCHEDULED


def test_a_job_whose_worker_has_no_row_is_taken_back(
    app: Towline, make_app: Callable[..., Towline], database: Database, trouble: list[Any]
) -> None:
    """Finding A8d: whoever deleted it; by that worker itself or by any other."""
    gate = Gate()
    started: list[int] = []

    @app.task
    def work(ctx: Context = INJECTED) -> int:
        started.append(ctx.attempt)
        if ctx.attempt == 1:
            gate.enter()
        return ctx.attempt

    with app.worker(lease=1):
        job = work.enqueue()
        gate.wait_inside()
        database.rows("DELETE FROM towline_worker")
        until(lambda: outcomes(app, job.id) == ["lost"])
        if job.refresh().state is State.SCHEDULED:
            app.run_now(job.id)
        assert job.result(LIMIT) == 2
        gate.open()
    assert started == [1, 2]


def test_rows_without_a_job_do_not_starve_their_queue(
    app: Towline,
    database: Database,
    lines: Lines,
    trouble: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding A8e: more of them than a turn claims, at the head of the queue; then innocent
    jobs."""
    monkeypatch.setattr("towline.worker.lookout.LOOK_INTERVAL", 0.2)  # three looks without a claim

    @app.task
    def work(number: int) -> int:
        return number

    orphans = app.enqueue_many([work.call(number) for number in range(30)])
    jobs = app.enqueue_many([work.call(number) for number in range(5)])
    ids = ", ".join(str(job.id) for job in orphans)
    if database.engine == "postgres":
        database.rows("SET session_replication_role = replica")  # no foreign key looks
    for table in ("job", "chain"):
        database.rows(f"DELETE FROM towline_{table} WHERE id IN ({ids})")
    with app.worker(concurrency=2):
        assert [job.result(LIMIT) for job in jobs] == list(range(5))
        until(lambda: not database.rows(f"SELECT 1 FROM towline_live WHERE job_id IN ({ids})"))
    assert "whose rows in the table of jobs are gone" in lines.text
