"""E11: Ctrl-C and cancelled tasks leave nothing of ours open on a caller's connection."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.conformance.caller import Caller
from tests.database import Database
from tests.kit import new
from towline import InvalidState, Towline
from towline.connections import base
from towline.operation import Op, adrive, drive


class Interrupt(BaseException):
    """As Ctrl-C, or the end of a task's patience."""


@contextmanager
def interrupts(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """An interrupt arrives once so many statements have been run."""
    left = itertools.count(number - 1, -1)

    def told(rows: Any) -> Any:
        if next(left) == 0:
            raise Interrupt
        return rows

    def run(op: Op[Any], execute: Callable[..., Any], *framed: Any) -> Any:
        return drive(op, lambda statement: told(execute(statement)), *framed)

    async def arun(op: Op[Any], execute: Callable[..., Awaitable[Any]], *framed: Any) -> Any:
        async def executed(statement: Any) -> Any:
            return told(await execute(statement))

        return await adrive(op, executed, *framed)

    with monkeypatch.context() as patch:
        patch.setattr(base, "drive", run)
        patch.setattr(base, "adrive", arun)
        yield


def test_E11_an_interrupt_after_any_statement_leaves_nothing_open_and_nothing_partial(
    app: Towline, caller: Caller, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after the first and the last, which are around the operation. What the caller writes in
    its own transaction between two of them is kept."""
    rows = len(database.rows("SELECT * FROM mine")) + ("writing" in caller.kind.name)
    for number in itertools.count(1):
        jobs = [new(f"after {number}"), new(f"after {number}", key="k")]
        try:
            with interrupts(monkeypatch, number):
                caller.run(app.runner.store.enqueue(jobs))
        except Interrupt:
            assert caller.in_transaction is caller.kind.in_transaction
            if caller.in_transaction:
                caller.sql("INSERT INTO mine DEFAULT VALUES")
                rows += 1
        else:
            break
    assert number > 3
    caller.commit()
    stored = Counter(job.task for job in app.jobs())
    assert stored[f"after {number}"] == 2
    assert set(stored.values()) == {2}
    assert len(database.rows("SELECT * FROM mine")) == rows


def test_E11_a_transaction_of_ours_that_is_interrupted_as_it_begins_or_ends_is_over(
    app: Towline, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of `ctx.transaction(on=…)`."""
    connection = app.runner.engine.recognise(caller.raw)

    async def awaited() -> None:
        if await connection.abegin():
            await connection.aend(commit=True)

    def blocking() -> None:
        if connection.begin():
            connection.end(commit=True)

    for number in itertools.count(1):
        try:
            with interrupts(monkeypatch, number):
                caller.wait(awaited()) if caller.kind.awaits else blocking()
        except Interrupt:
            assert not caller.in_transaction
        except InvalidState:  # SQLAlchemy's AUTOCOMMIT, which has no transactions
            return
        else:
            break
