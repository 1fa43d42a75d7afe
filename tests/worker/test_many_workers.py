"""Several workers on one database: who wakes for a job, and who loses a lease after a stall."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from tests.worker.outage import away
from towline import Towline
from towline.worker import Worker
from towline.worker.upkeep import SweepExpired

IDLE = 10
ONE_BY_ONE = 20


def counted(app: Towline, turns: list[str]) -> None:
    """Note each turn that a worker of this app takes."""
    turn = app.runner.store.turn

    def take(*args: Any, **settings: Any) -> Any:
        turns.append("turn")
        return turn(*args, **settings)

    app.runner.store.turn = take  # type: ignore[method-assign]


def know_each_other(workers: list[Worker]) -> bool:
    known = [worker.pump.turns.lookout for worker in workers]
    ranks = sorted(lookout.rank for lookout in known)
    return ranks == list(range(len(workers))) and all(k.peers == len(workers) for k in known)


def test_W6_one_job_wakes_about_one_of_many_idle_workers(make_app: Callable[..., Towline]) -> None:
    """It takes a turn to claim it and one to end it; if all woke, it would be about eleven."""
    turns: list[str] = []

    def work(number: int) -> int:
        return number

    with ExitStack() as stack:
        workers = []
        tasks = []
        for _ in range(IDLE):
            app = make_app()
            tasks.append(app.task(work))
            counted(app, turns)
            workers.append(stack.enter_context(app.worker()))
        until(lambda: know_each_other(workers))
        turns.clear()
        for number in range(ONE_BY_ONE):
            assert tasks[0].enqueue(number).result(LIMIT) == number
        assert len(turns) >= 2 * ONE_BY_ONE - 1  # the last ending may not be written yet
        assert len(turns) <= 4 * ONE_BY_ONE


def test_L9_the_second_look_comes_a_while_after_the_first(app: Towline) -> None:
    """However long the tick took before it looked: in it the worker may have waited for a database
    that was away, and others need a moment to renew, too."""
    turns = app.worker(lease=30.0).pump.turns
    duty = SweepExpired(turns)
    began = time.monotonic()
    duty.do(began - 60.0)
    assert duty.at >= began + 10.0


def test_L9_a_stall_of_the_database_below_two_leases_costs_nobody_a_lease(
    make_app: Callable[..., Towline], database: Database, trouble: list[logging.LogRecord]
) -> None:
    """A foreign write transaction, or a server out of reach. Both workers are late with their
    renewals when it ends, and neither takes from the other."""
    lease = 1.5
    gate = Gate()
    apps = [make_app(lock_timeout=0.2) for _ in range(2)]
    jobs = []

    def work() -> str:
        gate.enter()
        return "once"

    with ExitStack() as stack:
        for number, app in enumerate(apps):
            task = app.task(queue=f"queue{number}")(work)
            stack.enter_context(app.worker(lease=lease))
            jobs.append(task.enqueue())
            gate.wait_inside()
        with away(database):
            time.sleep(1.8 * lease)
        time.sleep(1.3 * lease)  # each looks a few times whether the other is gone
        gate.open()
        assert [job.result(LIMIT) for job in jobs] == ["once", "once"]
        assert [outcomes(apps[0], job.id) for job in jobs] == [["completed"], ["completed"]]
