"""A caller's transaction: its own write and an operation of ours, kept or undone together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite

from tests.conformance.conftest import OPEN
from tests.kit import rows
from windlass import Windlass
from windlass.operation import Op, Steps, compose

OWN_WRITE = "INSERT INTO mine (id) VALUES (77)"


class Undo(Exception):
    """Raised at the end of a script that is to leave nothing."""


def write_and_run(
    kind: str, app: Windlass, database: Path, script: Callable[[], Steps[None]], *, keep: bool
) -> None:
    """One transaction: a write of the caller's own, then the script; committed or rolled back.

    On our own connections the caller has no write, and an error is what rolls back.
    """

    def undone() -> Steps[None]:
        yield from script()
        raise Undo

    if kind.startswith("ours"):
        op = compose("script", script if keep else undone)
        try:
            app.run(op) if "blocking" in kind else asyncio.run(app.arun(op))
        except Undo:
            assert not keep
        return
    op = compose("script", script)
    if kind.startswith("aiosqlite"):
        asyncio.run(_await_transaction(app, database, op, autocommit="auto" in kind, keep=keep))
        return
    connection = OPEN[kind](database)
    try:
        if "autocommit" in kind and not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        connection.execute(OWN_WRITE)
        app.run(op, on=connection)
        assert connection.in_transaction
        # By SQL: with autocommit=True the methods do nothing.
        connection.execute("COMMIT" if keep else "ROLLBACK")
    finally:
        connection.close()


async def _await_transaction(
    app: Windlass, database: Path, op: Op[Any], *, autocommit: bool, keep: bool
) -> None:
    level: Any = None if autocommit else ""
    async with aiosqlite.connect(database, isolation_level=level) as connection:
        await connection.execute("BEGIN IMMEDIATE")
        await connection.execute(OWN_WRITE)
        await app.arun(op, on=connection)
        await (connection.commit() if keep else connection.rollback())


def own_writes(database: Path) -> int:
    return len(rows(database, "SELECT id FROM mine WHERE id = 77"))
