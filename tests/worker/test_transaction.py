"""`ctx.transaction()` on our own connection: a handler's writes and its job's end in one commit."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import (
    INJECTED,
    Backoff,
    ChainFailed,
    Context,
    InvalidState,
    Next,
    State,
    Towline,
)
from towline.errors import LeaseLost

pytestmark = pytest.mark.each_engine

AT_ONCE = Backoff(first=0)


def insert(database: Database) -> str:
    return f"INSERT INTO mine (id) VALUES ({'?' if database.engine == 'sqlite' else '%s'})"


def mine(database: Database) -> list[int]:
    return [id for (id,) in database.rows("SELECT id FROM mine ORDER BY id")]


def test_writes_and_the_end_of_the_job_are_one_commit(app: Towline, database: Database) -> None:
    """O1: blocking and awaiting; what the handler returns after that is ignored."""
    text = insert(database)

    @app.task
    def blocking(number: int, ctx: Context = INJECTED) -> str:
        with ctx.transaction() as tx:
            tx.execute(text, (number,))
            assert tx.execute("SELECT id FROM mine").fetchall() == [(number,)]
            tx.complete("completed inside")
        return "ignored"

    @app.task
    async def awaiting(number: int, ctx: Context = INJECTED) -> str:
        async with ctx.transaction() as tx:
            await tx.execute(text, (number,))
            cursor = await tx.execute("SELECT count(*) FROM mine")
            assert cursor.fetchall() == [(2,)]
            tx.complete("awaited inside")
        return "ignored"

    with app.worker():
        first = blocking.enqueue(1)
        assert first.result(LIMIT) == "completed inside"
        second = awaiting.enqueue(2)
        assert second.result(LIMIT) == "awaited inside"
    assert mine(database) == [1, 2]
    assert outcomes(app, first.id) == outcomes(app, second.id) == ["completed"]
    (attempt,) = app.attempts(first.id)
    assert attempt.worker
    assert attempt.started_at


@pytest.mark.parametrize("awaits", [False, True], ids=["thread", "loop"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_exception_in_the_block_keeps_nothing(
    app: Towline, database: Database, when: str, awaits: bool
) -> None:
    """O1: neither the writes nor the end; the attempt failed like any other."""
    text = insert(database)

    @app.task(backoff=AT_ONCE)
    def blocking(ctx: Context = INJECTED) -> Any:
        with ctx.transaction() as tx:
            tx.execute(text, (ctx.attempt,))
            if when == "after":
                tx.complete("inside")
            if ctx.attempt == 1:
                raise ValueError("half way")
        return "at the end"

    @app.task(backoff=AT_ONCE)
    async def awaiting(ctx: Context = INJECTED) -> Any:
        async with ctx.transaction() as tx:
            await tx.execute(text, (ctx.attempt,))
            if when == "after":
                tx.complete("inside")
            if ctx.attempt == 1:
                raise ValueError("half way")
        return "at the end"

    with app.worker():
        job = (awaiting if awaits else blocking).enqueue()
        assert job.result(LIMIT) == ("inside" if when == "after" else "at the end")
    assert mine(database) == [2]
    assert outcomes(app, job.id) == ["failed", "completed"]


def test_not_completing_is_just_a_transaction(app: Towline, database: Database) -> None:
    """O1: the value that is returned counts; there may be several."""
    text = insert(database)

    @app.task
    def blocking(ctx: Context = INJECTED) -> str:
        for number in (1, 2):
            with ctx.transaction() as tx:
                tx.execute(text, (number,))
        return "returned"

    @app.task
    async def awaiting(ctx: Context = INJECTED) -> str:
        for number in (3, 4):
            async with ctx.transaction() as tx:
                await tx.execute(text, (number,))
        return "returned"

    with app.worker():
        for task in (blocking, awaiting):
            assert task.enqueue().result(LIMIT) == "returned"
    assert mine(database) == [1, 2, 3, 4]


def test_completing_with_a_continuation(app: Towline, database: Database) -> None:
    """O1, C1: the next job is stored in the same commit."""
    text = insert(database)

    @app.task
    def last(number: int) -> int:
        return number

    @app.task
    def first(ctx: Context = INJECTED) -> Next[int]:
        with ctx.transaction() as tx:
            tx.execute(text, (1,))
            tx.complete(last.then(7))
        return last.then(0)

    with app.worker():
        job = first.enqueue()
        assert job.result(LIMIT) == 7
    assert mine(database) == [1]
    assert [j.position for j in app.jobs(chain=job.id, newest=False)] == [0, 1]


def test_enqueueing_in_the_transaction(app: Towline, database: Database) -> None:
    """O1, E1: on=tx.connection stores with it, and not when it is rolled back."""

    @app.task
    def side(attempt: int) -> int:
        return attempt

    @app.task(backoff=AT_ONCE)
    def main(ctx: Context = INJECTED) -> None:
        with ctx.transaction() as tx:
            side.using(on=tx.connection).enqueue(ctx.attempt)
            tx.complete()
            if ctx.attempt == 1:
                raise ValueError

    with app.worker():
        main.enqueue().result(LIMIT)
        (stored,) = app.jobs(task="side")
        assert stored.result(LIMIT) == 2


def test_raising_after_the_block_changes_nothing(
    app: Towline, database: Database, trouble: list[Any]
) -> None:
    """O1: the job has been completed; people are told."""
    text = insert(database)

    @app.task(backoff=AT_ONCE)
    def raises(ctx: Context = INJECTED) -> str:
        with ctx.transaction() as tx:
            tx.execute(text, (ctx.attempt,))
            tx.complete("inside")
        raise ValueError("too late")

    with app.worker():
        job = raises.enqueue()
        assert job.result(LIMIT) == "inside"
    assert mine(database) == [1]
    assert outcomes(app, job.id) == ["completed"]
    assert any("after it had completed" in record.getMessage() for record in trouble)


def test_a_job_is_completed_once(app: Towline) -> None:
    """O1: twice in a block, and a block after the one that completed it, are refused."""
    refused = []

    @app.task
    def twice(ctx: Context = INJECTED) -> str:
        with ctx.transaction() as tx:
            tx.complete("first")
            with pytest.raises(InvalidState):
                tx.complete("second")
            refused.append(1)
        with pytest.raises(InvalidState):
            with ctx.transaction():
                raise AssertionError("never entered")
        refused.append(2)
        return "returned"

    with app.worker():
        assert twice.enqueue().result(LIMIT) == "first"
    assert refused == [1, 2]


@pytest.mark.parametrize("awaits", [False, True], ids=["thread", "loop"])
def test_an_output_that_cannot_be_stored(app: Towline, database: Database, awaits: bool) -> None:
    """O4: the block is undone, the job fails at once."""
    text = insert(database)
    ran = []

    @app.task(backoff=AT_ONCE)
    def blocking(ctx: Context = INJECTED) -> None:
        ran.append(1)
        with ctx.transaction() as tx:
            tx.execute(text, (1,))
            tx.complete(object())

    @app.task(backoff=AT_ONCE)
    async def awaiting(ctx: Context = INJECTED) -> None:
        ran.append(1)
        async with ctx.transaction() as tx:
            await tx.execute(text, (1,))
            tx.complete(object())

    with app.worker():
        job = (awaiting if awaits else blocking).enqueue()
        with pytest.raises(ChainFailed, match="OutputError"):
            job.result(LIMIT)
    assert len(ran) == 1
    assert mine(database) == []


@pytest.mark.parametrize("how", ["cancel", "complete"])
def test_a_handler_that_lost_its_job_finds_out_before_it_writes(
    app: Towline, database: Database, how: str
) -> None:
    """O1, L3: LeaseLost at the beginning of the block, on both colours."""
    text = insert(database)
    gate = Gate()
    lost = []

    @app.task
    def blocking(ctx: Context = INJECTED) -> None:
        gate.enter()
        try:
            with ctx.transaction() as tx:
                tx.execute(text, (1,))
                tx.complete()
        except LeaseLost:
            lost.append("blocking")

    @app.task
    async def awaiting(ctx: Context = INJECTED) -> None:
        with suppress(asyncio.CancelledError):  # it goes on all the same
            await asyncio.to_thread(gate.enter)
        while "awaiting" not in lost:
            try:
                async with ctx.transaction() as tx:
                    await tx.execute(text, (2,))
                    tx.complete()
            except LeaseLost:
                lost.append("awaiting")
            except asyncio.CancelledError:
                pass  # told only now, and it goes on all the same

    with app.worker():
        jobs = [blocking.enqueue(), awaiting.enqueue()]
        gate.wait_inside(2)
        for job in jobs:
            job.cancel() if how == "cancel" else app.complete(job.id)
        gate.open()
        until(lambda: len(lost) == 2)
    assert mine(database) == []
    assert {job.refresh().state for job in jobs} == {
        State.CANCELLED if how == "cancel" else State.COMPLETED
    }


def test_while_the_block_is_open_nobody_can_take_the_job_away(
    app: Towline, database: Database
) -> None:
    """O1: the fence is held to the commit; a cancel waits for it and comes too late."""
    gate = Gate()
    text = insert(database)

    @app.task
    def work(ctx: Context = INJECTED) -> None:
        with ctx.transaction() as tx:
            tx.execute(text, (1,))
            gate.enter()
            tx.complete("kept")

    async def cancel_meanwhile() -> None:
        attempt = asyncio.create_task(job.acancel())
        await asyncio.sleep(0.05)
        gate.open()
        with pytest.raises(InvalidState):
            await attempt

    with app.worker():
        job = work.enqueue()
        gate.wait_inside()
        asyncio.run(cancel_meanwhile())
        assert job.result(LIMIT) == "kept"
    assert mine(database) == [1]


def test_a_long_transaction_is_worth_a_warning(app: Towline, trouble: list[Any]) -> None:
    """O1: others wait for it."""

    @app.task
    def slow(ctx: Context = INJECTED) -> None:
        with ctx.transaction() as tx:
            ctx.stop.wait(1.1)
            tx.complete()

    with app.worker():
        slow.enqueue().result(LIMIT)
    assert any("held a transaction open" in record.getMessage() for record in trouble)


def test_nothing_is_written_outside_of_the_block(app: Towline, database: Database) -> None:
    """O1: the connection is another's by then."""
    text = insert(database)

    @app.task
    def blocking(ctx: Context = INJECTED) -> None:
        tx = ctx.transaction()
        with pytest.raises(InvalidState, match="write inside of its block"):
            tx.execute(text, (1,))
        with tx:
            tx.execute(text, (2,))
        with pytest.raises(InvalidState, match="write inside of its block"):
            tx.execute(text, (3,))

    @app.task
    async def awaiting(ctx: Context = INJECTED) -> None:
        async with ctx.transaction() as tx:
            await tx.execute(text, (4,))
        with pytest.raises(InvalidState, match="write inside of its block"):
            await tx.execute(text, (5,))

    with app.worker():
        assert blocking.enqueue().result(LIMIT) is None
        assert awaiting.enqueue().result(LIMIT) is None
    assert mine(database) == [2, 4]


@pytest.mark.parametrize("again", [False, True], ids=["returns", "again"])
def test_a_commit_that_fails_has_not_completed_the_job(
    app: Towline, database: Database, again: bool
) -> None:
    """O1: a handler that knows what to do about it may complete it after all."""
    text = insert(database).replace("mine", "other")
    database.rows(
        "CREATE TABLE other (id bigint REFERENCES mine (id) DEFERRABLE INITIALLY DEFERRED)"
    )

    @app.task(max_attempts=1)
    def work(ctx: Context = INJECTED) -> str:
        try:
            with ctx.transaction() as tx:
                tx.execute(text, (7,))
                tx.complete("not kept")
        except (sqlite3.IntegrityError, psycopg.IntegrityError):
            if again:
                with ctx.transaction() as tx:
                    tx.complete("kept")
            return "kept"
        return "never"

    with app.worker():
        job = work.enqueue()
        assert job.result(LIMIT) == "kept"
    assert outcomes(app, job.id) == ["completed"]
    assert database.rows("SELECT id FROM other") == []
