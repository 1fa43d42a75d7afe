"""Fan-out by return in a worker: few children go with its turn, many are written by the slot."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from typing import Any

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, outcomes
from towline import INJECTED, Backoff, ChainFailed, Context, Next, Task, Towline
from towline.worker import own_commit
from towline.worker.own_commit import MOST_IN_A_TURN

pytestmark = pytest.mark.each_engine

AT_ONCE = Backoff(first=0)
MODULE = "tests.worker.tasks_fan_out"
SIZES = [1, MOST_IN_A_TURN, MOST_IN_A_TURN + 1, 1500]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that wrote an ending beside the turns."""
    names: list[str] = []
    plain = own_commit.finish_op

    def finish_op(*args: Any) -> Any:
        names.append(threading.current_thread().name)
        return plain(*args)

    monkeypatch.setattr(own_commit, "finish_op", finish_op)
    return names


def parts_of(app: Towline) -> tuple[Task[[int], int], Task[[], int]]:
    """A task of a part, and one that adds up what its blockers gave."""

    @app.task
    def part(number: int) -> int:
        return number

    @app.task
    def merge(ctx: Context = INJECTED) -> int:
        return sum(ctx.blockers)

    return part, merge


@pytest.mark.parametrize("awaits", [False, True], ids=["thread", "loop"])
@pytest.mark.parametrize("size", SIZES)
def test_F4_fan_out_and_fan_in_by_return(
    app: Towline, size: int, awaits: bool, written: list[str]
) -> None:
    @app.task
    def part(doc: int, number: int) -> int:
        return doc * number

    @app.task
    def merge(doc: int, ctx: Context = INJECTED) -> list[int]:
        return list(ctx.blockers)

    @app.task
    def split(doc: int) -> Next[list[int]]:
        return merge.using(after=[part.call(doc, n) for n in range(size)]).then(doc)

    @app.task
    async def asplit(doc: int) -> Next[list[int]]:
        return merge.using(after=[part.call(doc, n) for n in range(size)]).then(doc)

    with app.worker():
        job = (asplit if awaits else split).enqueue(3)
        assert job.result(LIMIT) == [3 * n for n in range(size)]
    assert outcomes(app, job.id) == ["continued"]
    assert len(written) == (size > MOST_IN_A_TURN)
    assert not any(name == "towline-pump" for name in written)
    assert app.stats()  # and the roll-ups know of it


def test_F4_a_handler_that_raises_after_asking_leaves_no_children(app: Towline) -> None:
    part, merge = parts_of(app)

    @app.task(backoff=AT_ONCE, max_attempts=3)
    def split(ctx: Context = INJECTED) -> Next[int]:
        following = merge.using(after=[part.call(n) for n in range(200)]).then()
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return following

    with app.worker():
        job = split.enqueue()
        assert job.result(LIMIT) == sum(range(200))
    assert app.counts()["default"]["completed"] == 202
    assert outcomes(app, job.id) == ["failed", "failed", "continued"]


@pytest.mark.parametrize("size", [3, 150])
def test_F4_a_cancelled_attempt_leaves_no_children(app: Towline, size: int) -> None:
    inside, go = threading.Event(), threading.Event()

    @app.task
    def part(number: int) -> int:
        return number

    @app.task
    def merge() -> int:
        return 1

    @app.task
    def split() -> Next[int]:
        inside.set()
        assert go.wait(LIMIT)
        return merge.using(after=[part.call(n) for n in range(size)]).then()

    with app.worker() as worker:
        job = split.enqueue()
        assert inside.wait(LIMIT)
        app.cancel(job.id)
        go.set()
        until(lambda: not worker.pump.turns.held)
    assert [str(each.state) for each in app.jobs(limit=10)] == ["cancelled"]


def test_F4_what_cannot_be_stored_fails_the_job_and_is_not_run_again(app: Towline) -> None:
    runs: list[int] = []

    @app.task
    def part(number: int) -> int:
        return number

    @app.task
    def split(size: int, unknown: bool) -> Next[int]:
        runs.append(size)
        calls = [part.call(n) for n in range(size)]
        return part.using(after=[*calls, *([10**9] if unknown else [])]).then(1)

    with app.worker():
        for size, unknown, words in (
            (10_001, False, "at most 10,000"),
            (2, True, "does not exist"),
            (200, True, "does not exist"),
        ):
            with pytest.raises(ChainFailed, match=words):
                split.enqueue(size, unknown).result(LIMIT)
    assert runs == [10_001, 2, 200]
    assert app.counts() == {"default": {"failed": 3}}


def test_F4_children_with_keys_are_written_by_the_slot(app: Towline, written: list[str]) -> None:
    """A key may be held by a caller who has not committed: no turn waits for that."""

    part, merge = parts_of(app)

    @app.task
    def split() -> Next[int]:
        calls = [part.using(key=f"{n}", scope="any").call(n) for n in range(3)]
        return merge.using(after=calls).then()

    with app.worker():
        assert split.enqueue().result(LIMIT) == 3
        assert split.enqueue().result(LIMIT) == 3
    assert len(written) == 2
    assert app.counts()["default"]["completed"] == 2 * 2 + 3


def test_F4_a_transaction_of_the_handler_completes_with_a_fan_out(
    app: Towline, database: Database
) -> None:
    part, merge = parts_of(app)

    @app.task
    def split(ctx: Context = INJECTED) -> Next[int] | None:
        with ctx.transaction() as tx:
            tx.execute("INSERT INTO mine (id) VALUES (5)")
            tx.complete(merge.using(after=[part.call(n) for n in range(4)]).then())
        return None

    with app.worker():
        assert split.enqueue().result(LIMIT) == 6
    assert database.rows("SELECT id FROM mine") == [(5,)]


@pytest.mark.parametrize("size", [5, 400])
def test_F4_a_process_fans_out(url: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOWLINE_URL", url)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    tasks: Any = importlib.import_module(MODULE)
    try:
        with tasks.app.worker(concurrency=2):
            job = tasks.split.enqueue(size)
            assert job.result(LIMIT) == sum(range(size))
        assert outcomes(tasks.app, job.id) == ["continued"]
    finally:
        tasks.app.close()


def test_F5_a_large_return_leaves_the_turns_to_others(app: Towline) -> None:
    """While its transaction waits, other jobs are finished and the lease is renewed (F5)."""
    writing, go = threading.Event(), threading.Event()
    plain = own_commit.finish_op

    @app.task
    def part(number: int) -> int:
        return number

    @app.task
    def merge(ctx: Context = INJECTED) -> int:
        return len(ctx.blockers)

    @app.task
    def split() -> Next[int]:
        return merge.using(after=[part.call(n) for n in range(1000)]).then()

    @app.task
    async def other() -> str:
        await asyncio.sleep(0)
        return "not held up"

    def held_up(*args: Any) -> Any:
        writing.set()
        assert go.wait(LIMIT)
        return plain(*args)

    with pytest.MonkeyPatch.context() as patch, app.worker(lease=1) as worker:
        patch.setattr(own_commit, "finish_op", held_up)
        job = split.enqueue()
        assert writing.wait(LIMIT)
        renewed = worker.pump._duties.lease.at
        assert other.enqueue().result(LIMIT) == "not held up"
        until(lambda: worker.pump._duties.lease.at > renewed)
        assert str(app.job(job.id).state) == "running"
        go.set()
        assert job.result(LIMIT) == 1000
