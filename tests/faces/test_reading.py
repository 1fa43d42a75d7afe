"""What one can know beside jobs and chains: workers and what they hold, tasks that nobody knows,
the time that decides, the job that control acts on. On both engines, blocking and awaiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit import SECOND, claim, register
from towline import Next, NotFound, Towline
from towline.operation import Op, Steps

from .test_bad_input import app as app  # both engines

Call = Callable[..., Any]


@pytest.fixture(params=["blocking", "awaiting"])
def call(request: pytest.FixtureRequest, app: Towline) -> Call:
    def call(method: str, *given: Any) -> Any:
        if request.param == "blocking":
            return getattr(app, method)(*given)
        return asyncio.run(getattr(app, f"a{method}")(*given))

    return call


def held(app: Towline, number: int, *, park: bool = False) -> int:
    """So many jobs of a task, claimed by a worker, and set aside by it if it does not know them."""

    @app.task
    def add(a: int) -> int:
        return a

    app.enqueue_many([add.call(n) for n in range(number)])

    def steps() -> Steps[int]:
        store = app.runner.store
        worker = yield from register(store, "w1", lease=60 * SECOND)
        claimed = yield from claim(store, number, worker)
        if park:
            yield from store.park(claimed)
        return worker

    return app.runner.run(Op("claim", steps))


def test_a_worker_says_its_lease_and_what_it_holds(app: Towline, call: Call) -> None:
    id = held(app, 2)
    (worker,) = call("workers")
    assert (worker.id, worker.name, worker.queues) == (id, "w1", ("default",))
    assert worker.running == tuple(sorted(job.id for job in app.jobs()))
    assert worker.lease_until.timestamp() == pytest.approx(worker.seen_at.timestamp() + 60)


def test_an_idle_worker_holds_nothing(app: Towline, call: Call) -> None:
    held(app, 0)
    (worker,) = call("workers")
    assert worker.running == ()


def test_L7_tasks_that_no_worker_knows_are_counted(app: Towline, call: Call) -> None:
    assert call("parked") == {}
    held(app, 3, park=True)
    assert call("parked") == {"add": 3}


def test_the_time_that_decides(app: Towline, call: Call) -> None:
    assert call("now").tzinfo is not None
    assert call("now").timestamp() == pytest.approx(time.time(), abs=60)


def test_the_time_may_be_that_of_a_test(app: Towline, call: Call) -> None:
    app.use(app.url, clock=lambda: 1_800_000_000 * SECOND)
    assert call("now").timestamp() == 1_800_000_000


def test_control_of_a_chain_acts_on_its_last_job(app: Towline, call: Call) -> None:
    @app.task
    def first() -> Next[int]:
        return second.then()

    @app.task
    def second() -> int:
        return 1

    job = first.enqueue()
    assert call("target", job.id).id == job.id
    app.complete(job.id, second.then())
    last = call("target", job.id)
    assert (last.task, last.chain_id) == ("second", job.id)
    assert call("target", last.id).id == last.id
    with pytest.raises(NotFound):
        call("target", 99)
