"""C6: waiting for several chains, and the jobs of one task."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.kit import Clock
from towline import NotFound, Towline, WaitTimeout
from towline.app.group import Group
from towline.errors import InvalidSetting


@pytest.mark.parametrize("awaits", [False, True])
def test_C6_wait_returns_when_all_have_ended_or_the_first_has(app: Towline, awaits: bool) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    def wait(*args: Any, **given: Any) -> object:
        if awaits:
            return asyncio.run(app.await_(*args, **given))
        return app.wait(*args, **given)

    one, two, three = [add.enqueue(n) for n in range(3)]
    with pytest.raises(WaitTimeout, match=r"not all of 3 chains have ended within 0\.01 s"):
        wait([one, two, three], timeout=0.01)
    app.cancel(two.id)
    assert wait([one, two, three], return_when="first") == [two]
    end = threading.Timer(0.2, lambda: [app.complete(job.id, 1) for job in (one, three)])
    end.start()
    assert wait([three, two, one], timeout=60) == [three, two, one]
    end.join()
    assert wait([]) == []
    with pytest.raises(InvalidSetting, match="of no jobs none can be the first to end"):
        wait([], return_when="first")
    with pytest.raises(InvalidSetting, match='return_when is "all" or "first", not '):
        wait([one], return_when="any")
    app.delete(one.id)
    with pytest.raises(NotFound, match=f"there is no chain {one.id}"):
        wait([one, two])


def test_what_nobody_can_wait_for_is_refused(app: Towline) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    job = add.enqueue(1)
    group = app.enqueue_group([add.call(2)])
    app.worker(drain=True).run()
    strange: Any = timedelta(seconds=1)
    waits: list[Callable[[], object]] = [
        lambda: job.result(strange),
        lambda: asyncio.run(job.aresult(strange)),
        lambda: app.wait([job], timeout=strange),
        lambda: asyncio.run(app.await_([job], timeout=strange)),
        lambda: list(group.results(strange)),
        lambda: list(app.map([add.call(3)], timeout=strange)),
    ]
    for wait in waits:
        with pytest.raises(InvalidSetting, match="timeout= is seconds to wait, or None, not "):
            wait()
    ids: Any = [job.id]
    with pytest.raises(
        InvalidSetting, match=rf"takes jobs as enqueue\(\) gives them, not {job.id}"
    ):
        app.wait(ids)


def test_R1_a_task_finds_its_own_jobs(app: Towline) -> None:
    @app.task
    def mine() -> int:
        """Of its own."""
        return 1

    @app.task
    def other() -> None: ...

    ids = [mine.enqueue().id for _ in range(3)]
    strange = other.enqueue()
    assert mine.job(ids[0]).id == ids[0]
    assert [job.id for job in mine.jobs(state="pending", limit=2)] == ids[:0:-1]
    assert [job.id for job in asyncio.run(mine.ajobs())] == ids[::-1]
    with pytest.raises(NotFound, match=f"job {strange.id} is of task other, not of mine"):
        mine.job(strange.id)
    with pytest.raises(NotFound):
        asyncio.run(mine.ajob(strange.id))
    said = (mine.__name__, mine.__qualname__.split(".")[-1], mine.__module__, mine.__doc__)
    assert said == ("mine", "mine", __name__, "Of its own.")


def test_E12_a_wait_never_takes_another_chain_for_one_that_was_rolled_back(
    app: Towline, database: Path, clock: Clock
) -> None:
    @app.task
    def work() -> None: ...

    app.migrate()
    with closing(sqlite3.connect(database)) as connection:
        ghost = work.using(on=connection).enqueue()
        connection.rollback()
    clock.advance(1)
    other = work.enqueue()
    assert other.id == ghost.id
    other.cancel()
    with pytest.raises(NotFound):
        app.wait([ghost])
    assert app.wait([other]) == [other]


@pytest.mark.parametrize("awaits", [False, True])
def test_E12_a_group_never_takes_the_members_of_another_for_those_that_were_rolled_back(
    app: Towline, database: Path, clock: Clock, awaits: bool
) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    def results(group: Group[int]) -> list[int]:
        if not awaits:
            return list(group.results(timeout=60))

        async def read() -> list[int]:
            return [result async for result in group.aresults(timeout=60)]

        return asyncio.run(read())

    def failed(group: Group[int]) -> int:
        return asyncio.run(group.afailed()) if awaits else group.failed()

    app.migrate()
    with closing(sqlite3.connect(database)) as connection:
        ghost = app.enqueue_group([add.call(n) for n in (1, 2)], on=connection)
        connection.rollback()
    clock.advance(1)
    other = app.enqueue_group([add.call(n) for n in (3, 4)])
    assert other.id == ghost.id
    app.worker(drain=True).run()
    for read in (results, failed):
        with pytest.raises(NotFound):
            read(ghost)
    assert (results(other), failed(other)) == ([3, 4], 0)
