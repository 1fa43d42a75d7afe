"""Workers use all of their slots, share what there is, and let nobody's open transaction stop or
busy them: findings A17, P2, P12, P14."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate
from tests.worker.test_ahead import after_a_burst
from towline import INJECTED, Context, State, Towline
from towline.worker.unwritten import MOST_IN_TURN

FAR = 3600.0  # seconds that nobody waits for


@pytest.fixture
def only_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds work by looking for it every few seconds."""
    monkeypatch.setattr("towline.worker.lookout.LOOK_INTERVAL", FAR)


def test_so_many_run_at_a_time_as_was_said(app: Towline) -> None:
    """Finding A17: also more than are claimed in one turn."""
    inside = 0
    opened = threading.Event()

    @app.task
    async def nap() -> None:
        nonlocal inside
        inside += 1
        while not opened.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.05)

    app.enqueue_many([nap.call() for _ in range(520)])
    with app.worker(concurrency=500, prefetch=0):
        until(lambda: inside == 500)
        opened.set()
        until(lambda: not app.jobs(state=State.RUNNING, limit=1))
        until(lambda: inside == 520)


@pytest.mark.each_engine
@pytest.mark.usefixtures("only_wakes")
def test_G2_a_slot_that_a_transaction_lets_go_is_told_to_who_has_room(
    make_app: Callable[..., Towline],
) -> None:
    """The worker that ran it does what it prefers, and no turn of it writes the end."""
    inside, meanwhile = Gate(), Gate()

    def limited(ctx: Context = INJECTED) -> None:
        inside.enter()
        with ctx.transaction() as tx:
            tx.complete()

    first, second = make_app(), make_app()
    tasks = [app.task(queue="mail")(limited) for app in (first, second)]
    preferred = first.task(queue="first", name="preferred")(lambda: meanwhile.enter())
    first.set_limit("mail", concurrency=1)
    with first.worker(queues=["first", "mail"], concurrency=1):
        tasks[0].enqueue()
        inside.wait_inside()
        with second.worker(queues=["mail"], concurrency=1):
            until(lambda: len(first.workers()) == 2)
            job = tasks[0].enqueue()
            preferred.enqueue()
            inside.open()
            meanwhile.wait_inside()
            job.result(LIMIT)
            meanwhile.open()


@pytest.mark.usefixtures("postgres")
def test_endings_that_a_caller_holds_back_do_not_hold_back_others(
    app: Towline, database: Database
) -> None:
    """Finding P2: more of them than one turn writes."""

    @app.task
    def held(number: int) -> int:
        return number

    @app.task
    def other(number: int) -> int:
        return number

    @app.task
    def last(ctx: Context = INJECTED) -> int:
        return sum(ctx.blockers)

    number = MOST_IN_TURN + 50
    jobs = app.enqueue_many([held.call(1) for _ in range(number)])
    with closing(database.connect()) as caller:
        final = last.using(after=jobs, on=caller).enqueue()  # not committed
        with app.worker() as worker:
            until(lambda: len(worker.pump.turns.endings) == number)
            for place in range(20):
                assert other.enqueue(place).result(LIMIT) == place
            assert len(worker.pump.turns.endings) == number
            caller.commit()
            assert final.result(LIMIT) == number


@pytest.mark.usefixtures("postgres")
@pytest.mark.parametrize("what", ["a due job", "an ending"])
def test_what_a_caller_holds_does_not_busy_an_idle_worker(
    app: Towline, database: Database, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding P12: it looks less and less often, and goes on when the caller has ended."""
    operations: list[str] = []
    run = app.runner.engine.run

    def counted(op: Any, *args: Any) -> Any:
        operations.append(op.name)
        return run(op, *args)

    @app.task
    def work() -> str:
        return "done"

    @app.task
    def behind() -> str:
        return "behind"

    with closing(database.connect()) as caller:
        if what == "a due job":
            job = work.using(delay=0.5).enqueue()
            caller.execute(f"SELECT 1 FROM towline_live WHERE job_id = {job.id} FOR UPDATE")
        else:
            job = work.enqueue()
            behind.using(after=[job], on=caller).enqueue()
        with app.worker():
            until(lambda: app.workers())
            time.sleep(1.5)
            monkeypatch.setattr(app.runner.engine, "run", counted)
            time.sleep(3)
            assert len(operations) <= 60, operations
            assert job.refresh().state is not State.COMPLETED
            caller.rollback()
            assert job.result(LIMIT) == "done"


@pytest.mark.usefixtures("only_wakes")
def test_many_queues_are_shared_as_one(make_app: Callable[..., Towline]) -> None:
    """Finding P14: one worker locks jobs of each queue for a moment and takes a few; the others
    look again, until all that fit run at the same time."""
    queues = [f"queue{number}" for number in range(8)]
    gate = Gate()

    def work(number: int) -> int:
        gate.enter()
        return number

    with ExitStack() as stack:
        apps = [make_app() for _ in range(4)]
        tasks = [app.task(work) for app in apps]
        for app in apps:
            stack.enter_context(app.worker(queues=queues, concurrency=4))
        until(lambda: len(apps[0].workers()) == 4)
        jobs = apps[0].enqueue_many(
            [tasks[0].using(queue=queues[n % 8]).call(n) for n in range(16)]
        )
        gate.wait_inside(16)
        gate.open()
        assert [job.result(LIMIT) for job in jobs] == list(range(16))


def test_after_a_burst_all_take_part(make_app: Callable[..., Towline]) -> None:
    """Finding P14: none of them claims far ahead because the jobs before were quick."""

    def nap() -> None:
        time.sleep(0.1)

    with ExitStack() as stack:
        apps = [make_app() for _ in range(8)]
        tasks = [app.task(nap) for app in apps]
        workers = [
            stack.enter_context(app.worker(name=f"w{place}", concurrency=2))
            for place, app in enumerate(apps)
        ]
        until(lambda: len(apps[0].workers()) == 8)
        for app in apps[1:]:
            app.task(name="quick of a burst")(lambda: None)
        after_a_burst(apps[0], workers[0])
        jobs = apps[0].enqueue_many([tasks[0].call() for _ in range(64)])
        for job in jobs:
            job.result(LIMIT)
    ran = Counter(job.refresh().worker for job in jobs)
    assert len(ran) >= 6, ran
    assert max(ran.values()) <= 32, ran
