"""L7: workers of two releases on one queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.until import until
from tests.worker.gate import LIMIT, outcomes
from towline import Towline


def test_a_parked_job_starts_beside_a_worker_that_does_not_know_it(
    app: Towline, make_app: Callable[..., Towline]
) -> None:
    """L7: a rolling upgrade. The new worker unparks once at its begin, the old one claims and parks
    them again, and the next unparking is a third of a lease later, with the same odds."""
    other = make_app()

    @other.task
    def unknown(number: int) -> int:
        return number

    @app.task
    def known() -> str:
        return "went on"

    with app.worker():
        jobs = [unknown.enqueue(number) for number in range(20)]
        until(lambda: all(job.refresh().reason for job in jobs))
        with other.worker(concurrency=1, prefetch=0):
            assert [job.result(LIMIT) for job in jobs] == list(range(20))


FAR = 3600.0  # seconds of a lease, or between looks, that nobody waits for here


def count_parks(app: Towline, parked: Counter[int]) -> None:
    """Note each job that a worker of this app sets aside."""
    park = app.runner.store.park

    def parks(jobs: Any) -> Any:
        parked.update(job.job_id for job in jobs)
        return park(jobs)

    app.runner.store.park = parks  # type: ignore[method-assign]


@pytest.mark.parametrize("one_by_one", [True, False], ids=["one by one", "together"])
def test_beside_an_old_worker_the_new_one_runs_new_tasks_at_once(
    make_app: Callable[..., Towline], monkeypatch: pytest.MonkeyPatch, one_by_one: bool
) -> None:
    """L7, finding S3: it neither waits for a third of a lease nor for its next look."""
    monkeypatch.setattr("towline.worker.lookout.LOOK_INTERVAL", FAR)
    parked: Counter[int] = Counter()
    old, new, caller = (make_app() for _ in range(3))
    old.task(name="a")(_value)
    for app in (new, caller):
        app.task(name="a")(_value)
        app.task(name="b")(_value)
    count_parks(old, parked)
    count_parks(new, parked)
    task = caller.registry["b"]
    with old.worker(name="old", lease=FAR), new.worker(name="new", lease=FAR):
        until(lambda: len(caller.workers()) == 2)
        if one_by_one:
            jobs = []
            for number in range(25):
                jobs.append(task.enqueue(number))
                assert jobs[-1].result(LIMIT) == number
        else:
            jobs = caller.enqueue_many([task.call(number) for number in range(50)])
            assert [job.result(LIMIT) for job in jobs] == list(range(50))
    assert {job.refresh().worker for job in jobs} == {"new"}
    assert {tuple(outcomes(caller, job.id)) for job in jobs} == {("completed",)}
    assert max(parked.values(), default=0) <= 3  # nobody fights over them


def test_a_rolling_deploy(make_app: Callable[..., Towline]) -> None:
    """L7, finding S3: old workers are replaced one after the other while jobs of both come."""
    old, new = make_app(), make_app()
    old.task(name="a")(_value)
    new.task(name="a")(_value)
    new.task(name="b")(_value)
    a, b = new.registry["a"], new.registry["b"]
    jobs = []
    running = [old.worker(name=f"old{n}", lease=FAR).start() for n in range(2)]
    try:
        for n in range(2):
            jobs += new.enqueue_many([task.call(n) for _ in range(20) for task in (a, b)])
            running.append(new.worker(name=f"new{n}", lease=FAR).start())
            running.pop(0).stop()
            jobs += new.enqueue_many([task.call(n) for _ in range(20) for task in (a, b)])
        for job in jobs:
            job.result(LIMIT)
    finally:
        for worker in running:
            worker.stop()
    assert {tuple(outcomes(new, job.id)) for job in jobs} == {("completed",)}
    for job in jobs:
        assert job.task == "a" or (job.refresh().worker or "").startswith("new")


def test_a_worker_leaves_parked_jobs_of_queues_it_does_not_serve(
    make_app: Callable[..., Towline],
) -> None:
    """Finding S3: else it would bring them back, and the other would set them aside, for ever."""
    parked: Counter[int] = Counter()
    old, new = make_app(), make_app()
    old.task(name="a", queue="first")(_value)
    new.task(name="b")(_value)
    count_parks(old, parked)
    count_parks(new, parked)
    with old.worker(queues=["first"]), new.worker(queues=["second"]):
        until(lambda: len(new.workers()) == 2)
        job = new.registry["b"].using(queue="first").enqueue(1)
        until(lambda: parked[job.id])
        for number in range(30):  # wakes, and turns, of both
            assert new.registry["b"].using(queue="second").enqueue(number).result(LIMIT) == number
        assert parked[job.id] == 1
        assert "b" in (job.refresh().reason or "")
    with new.worker(queues=["first"]):
        assert job.result(LIMIT) == 1


def _value(number: int) -> int:
    return number
