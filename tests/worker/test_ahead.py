"""Finding A4: what a worker has claimed ahead does not wait behind a slow job while others idle."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import State, Towline
from towline.errors import StoreUnavailable
from towline.operation import Op
from towline.store.turn import Turn
from towline.worker import Worker
from towline.worker.attempt import Attempt
from towline.worker.lookout import BYTES_AHEAD

BURST = 1500  # quick jobs, after which a worker claims ahead


def after_a_burst(app: Towline, worker: Worker) -> None:
    """Let a worker get used to quick jobs."""
    quick = app.task(name="quick of a burst")(_nothing)
    jobs = app.enqueue_many([quick.call() for _ in range(BURST)])
    jobs[-1].result(LIMIT)
    until(lambda: not worker.pump.turns.held)


def _nothing() -> None:
    pass


def test_an_idle_worker_gets_what_waits_behind_a_slow_job(
    make_app: Callable[..., Towline],
) -> None:
    """Finding A4: one is in its slot and never ends before the others have begun elsewhere."""
    apps = [make_app() for _ in range(2)]
    gate = Gate()

    def slow(number: int) -> int:
        gate.enter()
        return number

    tasks = [app.task(slow) for app in apps]
    with apps[0].worker(name="w0", concurrency=1) as first:
        after_a_burst(apps[0], first)
        jobs = apps[0].enqueue_many([tasks[0].call(number) for number in range(4)])
        gate.wait_inside()
        with ExitStack() as stack:
            for number in range(1, 4):
                stack.enter_context(apps[1].worker(name=f"w{number}", concurrency=1))
            gate.wait_inside(3)
            gate.open()
            assert [job.result(LIMIT) for job in jobs] == [0, 1, 2, 3]
    assert {job.refresh().worker for job in jobs} == {"w0", "w1", "w2", "w3"}
    assert {job.refresh().attempt for job in jobs} <= {1, 2}


def test_a_handler_may_wait_for_a_job_it_has_enqueued(make_app: Callable[..., Towline]) -> None:
    """Finding A4: its own worker does not keep that job behind it while another has room."""
    apps = [make_app() for _ in range(2)]

    def child(number: int) -> int:
        return number

    children = [app.task(child) for app in apps]

    def parent(number: int) -> int:
        return children[0].enqueue(number).result(LIMIT) + 1

    parents = [app.task(parent) for app in apps]
    with apps[0].worker(name="w0", concurrency=1) as first:
        after_a_burst(apps[0], first)
        with apps[1].worker(name="w1", concurrency=1):
            for number in range(3):
                assert parents[0].enqueue(number).result(LIMIT) == number + 1


def test_claiming_ahead_by_a_fixed_number_does_not_go_round_in_circles(
    app: Towline,
) -> None:
    """Finding A4: what was handed back is not claimed ahead again before something has ended."""
    gate = Gate()

    @app.task
    def slow(number: int) -> int:
        gate.enter()
        return number

    jobs = app.enqueue_many([slow.call(number) for number in range(12)])
    with app.worker(concurrency=1, prefetch=10):
        gate.wait_inside()
        until(lambda: max(job.refresh().attempt for job in jobs[1:]) == 1)
        time.sleep(1.0)  # many times longer than one needs to go round
        assert {job.refresh().state for job in jobs[1:]} == {State.PENDING}
        assert max(job.refresh().attempt for job in jobs) <= 2
        gate.open()
        assert [job.result(LIMIT) for job in jobs] == list(range(12))
    assert max(job.refresh().attempt for job in jobs) <= 3
    assert {tuple(outcomes(app, job.id)) for job in jobs} == {("completed",)}


def test_what_was_claimed_ahead_is_pending_until_it_begins(
    app: Towline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding A4: for whoever lists jobs; once it has begun and lasts, it is seen running."""
    monkeypatch.setattr("towline.worker.lookout.Prefetch.patience", 3600.0)
    first, second = Gate(), Gate()

    @app.task
    def slow(number: int) -> None:
        (first if number == 0 else second).enter()

    jobs = app.enqueue_many([slow.call(number) for number in range(3)])
    with app.worker(name="w", concurrency=1, prefetch=2):
        first.wait_inside()
        until(lambda: all(job.refresh().attempt == 1 for job in jobs))
        assert [str(job.refresh().state) for job in jobs] == ["running", "pending", "pending"]
        assert [job.id for job in app.jobs(state=State.RUNNING)] == [jobs[0].id]
        assert [job.id for job in app.jobs(state=State.PENDING)] == [jobs[2].id, jobs[1].id]
        (info,) = app.workers()
        assert (len(info.running), info.busy) == (3, 1), "one slot is busy, and two wait for it"
        first.open()
        second.wait_inside()
        until(lambda: jobs[1].refresh().state is State.RUNNING)
        assert jobs[2].refresh().state is State.PENDING
        ((started,),) = database.rows(
            "SELECT started_at FROM towline_live WHERE job_id = ?", jobs[1].id
        )
        second.open()
        jobs[2].result(LIMIT)
    (attempt,) = app.attempts(jobs[1].id)
    assert attempt.started_at is not None
    assert round(attempt.started_at.timestamp() * 1e6) == started


def test_large_arguments_are_claimed_ahead_by_their_size(app: Towline) -> None:
    """Finding A4: a job of a megabyte is not as light as one of ten bytes."""
    size = 1_000_000
    most = 0

    @app.task
    def heavy(text: str) -> int:
        nonlocal most
        most = max(most, sum(len(a.held.arguments) for a in list(worker.pump.turns.held.values())))
        return len(text)

    with app.worker(concurrency=2) as worker:
        after_a_burst(app, worker)
        # Storing them takes so long that nothing is claimed ahead at first.
        jobs = app.enqueue_many([heavy.call("x" * (size - 100)) for _ in range(40)])
        jobs[-1].result(LIMIT)
    assert most <= BYTES_AHEAD + 3 * size


def test_a_stop_gives_back_what_has_not_begun_and_loses_nothing(app: Towline) -> None:
    """L10, W1, finding A4: no attempt is in the history of what was never called."""
    gate = Gate()
    called: list[int] = []

    @app.task
    def slow(number: int) -> int:
        called.append(number)
        gate.enter()
        return number

    jobs = app.enqueue_many([slow.call(number) for number in range(30)])
    worker = app.worker(concurrency=2, prefetch=20, grace=LIMIT).start()
    gate.wait_inside(2)
    worker.stop(wait=False)
    until(lambda: len(worker.pump.turns.held) == 2)
    gate.open()
    worker.stop()
    assert sorted(called) == [0, 1]
    assert [outcomes(app, job.id) for job in jobs] == [["completed"]] * 2 + [[]] * 28
    assert {job.refresh().state for job in jobs[2:]} == {State.PENDING}
    with app.worker():
        assert [job.result(LIMIT) for job in jobs] == list(range(30))


@pytest.mark.each_engine
def test_what_is_held_back_until_the_next_turn_begins_though_that_one_fails(
    app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W2: quick jobs begin when the database is busy with a turn; it need not get there."""
    worker = app.worker(concurrency=2)
    to_slots, turn = worker.pump.turns.ahead.to_slots, app.runner.store.turn
    met: list[Attempt] = []

    def failing(*given: Any, **named: Any) -> Op[Turn]:
        if to_slots.held_back and not met:
            met.extend(each for each in worker.pump.turns.held.values() if each.begun is None)
        if met:
            raise StoreUnavailable("as if the server were away")
        return turn(*given, **named)

    @app.task
    def quick(number: int) -> int:
        return number

    jobs = app.enqueue_many([quick.call(number) for number in range(BURST)])
    with monkeypatch.context() as patch:
        patch.setattr("towline.worker.lookout.Prefetch.patience", 3600.0)  # none goes back
        patch.setattr(app.runner.store, "turn", failing)
        patch.setattr("towline.worker.pump.Pump._announce_trouble", lambda *_: None)
        worker.start()
        until(lambda: met)
        until(lambda: all(attempt.ended for attempt in met))
    assert [job.result(LIMIT) for job in jobs] == list(range(BURST))
    worker.stop()
