"""A job that one more loss of its worker would fail runs with nothing beside it: finding A11."""

from __future__ import annotations

import time

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate
from towline import State, Towline


def test_the_last_try_of_a_job_is_made_alone(app: Towline, database: Database) -> None:
    """O11: while others run it has not begun, for whoever sweeps their worker too; while it runs
    nothing else begins."""
    beside, alone = Gate(), Gate()

    @app.task
    def other() -> None:
        beside.enter()

    @app.task
    def endangered() -> None:
        alone.enter()

    @app.task
    def late() -> str:
        return "late"

    first = other.enqueue()
    job = endangered.enqueue()
    database.rows("UPDATE towline_live SET lost = 2 WHERE job_id = ?", job.id)

    def begun() -> bool:
        found = database.rows("SELECT started_at FROM towline_live WHERE job_id = ?", job.id)
        return found[0][0] is not None

    with app.worker(concurrency=4):
        beside.wait_inside()
        until(lambda: job.refresh().attempt)
        for _ in range(20):
            assert not begun()
            assert job.refresh().state is not State.RUNNING
            time.sleep(0.01)
        beside.open()
        first.result(LIMIT)
        if job.refresh().state is State.SCHEDULED:  # put off, since others went on and on
            app.run_now(job.id)
        alone.wait_inside()
        until(begun)
        waiting = late.enqueue()
        time.sleep(0.1)
        assert waiting.refresh().attempt == 0
        alone.open()
        assert waiting.result(LIMIT) == "late"
        job.result(LIMIT)


def test_others_do_not_wait_for_one_that_waits_to_be_alone(
    app: Towline, database: Database
) -> None:
    """It is put off for a while when what runs beside it goes on and on."""
    beside = Gate()

    @app.task
    def other() -> None:
        beside.enter()

    @app.task
    def endangered() -> str:
        return "alone"

    @app.task
    def quick() -> str:
        return "quick"

    other.enqueue()
    job = endangered.enqueue()
    database.rows("UPDATE towline_live SET lost = 2 WHERE job_id = ?", job.id)
    with app.worker(concurrency=4):
        beside.wait_inside()
        for _ in range(3):
            assert quick.enqueue().result(LIMIT) == "quick"
        assert app.attempts(job.id) == []
        beside.open()
        assert job.result(LIMIT) == "alone"
