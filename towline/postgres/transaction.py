"""One transaction of our own: how it begins, and what its commit means.

It begins in one round trip with its settings and the database's time. They are set for the
transaction only: a pooler may give the connection to somebody else afterwards.
"""

from __future__ import annotations

import json
import select
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from ..connections.psycopg import PlainCursor, execute
from ..errors import CommitUnknown, StoreError
from ..operation import Op, drive
from ..sql import Queries, Row, Statement

T = TypeVar("T")

# Plans must not rest on how full the tables were when a statement was prepared, or on guesses
# before the first ANALYZE: a bitmap of the whole backlog, sorted, for the few rows that an index
# would give in order. And a statement of a few rows gains nothing from being compiled.
SETTINGS = (
    "SET LOCAL statement_timeout = 0; SET LOCAL enable_seqscan = off; "
    "SET LOCAL enable_bitmapscan = off; SET LOCAL jit = off"
)


class Transaction:
    """A cursor of ours between BEGIN and COMMIT."""

    def __init__(self, sql: Queries, cursor: PlainCursor) -> None:
        self._sql = sql
        self._cursor = cursor
        self._now = 0
        self._prepare: bool | None = None
        self.woken: set[str] = set()

    def begin(self, op: Op[Any], lock_timeout: float, *, losable: bool) -> None:
        kind = "REPEATABLE READ, READ ONLY" if op.reads else "READ COMMITTED"
        # What people ask is planned anew, for the tables as they are; what workers do is prepared.
        self._prepare = False if op.reads else None
        commit = "; SET LOCAL synchronous_commit = off" if losable else ""
        self._cursor.execute(
            f"BEGIN ISOLATION LEVEL {kind}; {SETTINGS}{commit}; "
            f"SET LOCAL lock_timeout = {max(1, round(lock_timeout * 1000))}; "
            f"{self._sql.clock.text}".encode()
        )
        while self._cursor.nextset():
            pass
        ((now,),) = self._cursor.fetchall()
        assert isinstance(now, int)
        self._now = now

    def execute(self, statement: Statement) -> list[Row]:
        """Run a statement. The time is known; whom to wake is remembered until the commit."""
        if statement.query is self._sql.clock:
            return [(self._now,)]
        if statement.query is self._sql.notify:
            _, queues = statement.params
            self.woken.update(json.loads(str(queues)))
            return []
        if statement.query is self._sql.notify_ended:
            return []  # whoever runs the operation tells it, now and then
        return execute(self._cursor, statement, self._prepare)

    def undo(self) -> None:
        raw = self._cursor.connection
        if not raw.closed and raw.info.transaction_status is not TransactionStatus.IDLE:
            try:
                self._cursor.execute(b"ROLLBACK")
            except psycopg.Error:
                raw.close()

    def commit(self, name: str, *, reads: bool = False) -> None:
        """Commit, and be sure of it: an aborted transaction "commits" quietly, and a connection
        that dies meanwhile leaves open whether it was."""
        raw = self._cursor.connection
        if raw.info.transaction_status is not TransactionStatus.INTRANS:
            self.undo()
            raise StoreError(f"{name} was rolled back: a statement of it had failed")
        try:
            self._cursor.execute(b"COMMIT")
        except psycopg.OperationalError as error:
            if reads or not raw.closed:
                raise
            raise _unknown(name) from error

    def alone(self, op: Op[T]) -> T:
        """Run an operation of one statement, which commits itself; its loss is one of a commit."""
        try:
            return drive(op, self.execute)
        except psycopg.OperationalError as error:
            if not self._cursor.connection.closed:
                raise
            raise _unknown(op.name) from error


def is_stale(raw: psycopg.Connection[Any]) -> bool:
    """Whether an idle connection has something to say: its server said good-bye."""
    try:
        poll = select.poll()
        poll.register(raw.fileno(), select.POLLIN)
        return bool(poll.poll(0))
    except (OSError, ValueError, psycopg.Error):
        return True


def _unknown(name: str) -> CommitUnknown:
    return CommitUnknown(
        f"the connection was lost while {name} was being committed: it may be stored or not. "
        "Look before you repeat it; an enqueue with key= and scope='any' can be repeated as it is"
    )
