"""Y2: a sequence by key, in a worker."""

from __future__ import annotations

import pytest

from tests.worker.gate import LIMIT
from towline import INJECTED, Context, Towline
from towline.app.handles import Job


@pytest.mark.each_engine
def test_Y2_a_handler_enqueues_its_successor_under_its_own_key(app: Towline) -> None:
    ran: list[tuple[int, int]] = []
    running: list[int] = []

    @app.task
    def step(number: int, ctx: Context = INJECTED) -> int:
        assert not running
        running.append(number)
        ran.append((number, len(ctx.blockers)))
        if number < 5:
            following = step.using(key="k", on_conflict="after", on_blocker_failure="run")
            assert following.enqueue(number + 1).state == "blocked"
        running.remove(number)
        return number

    first = step.using(key="k").enqueue(1)
    with app.worker(concurrency=4):
        last: Job[int] = first
        while last.result(LIMIT) < 5:
            (following,) = app.dependents(last.id)
            last = app.job(following.job_id)
    assert ran == [(number, 0) for number in range(1, 6)]


def test_Y4_what_comes_while_it_runs_is_run_after_it(app: Towline) -> None:
    @app.task
    def index(text: str) -> str:
        if text == "first":
            for newer in ("second", "third"):
                index.using(key="k", on_conflict="latest").enqueue(newer)
            raise ValueError("and it fails")
        return text

    first = index.using(key="k", on_conflict="latest", max_attempts=1).enqueue("first")
    with app.worker():
        with pytest.raises(Exception, match="and it fails"):
            first.result(LIMIT)
        (following,) = app.dependents(first.id)
        assert app.job(following.job_id).result(LIMIT) == "third"
