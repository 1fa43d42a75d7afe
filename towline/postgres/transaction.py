"""One transaction of our own: how it begins, and what its commit means.

It begins in one round trip with the database's time, and behind a pooler with its settings: they
are set for the transaction only there, since the connection may be somebody else's afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from ..connections.psycopg import PlainCursor, execute
from ..errors import CommitUnknown, StoreError
from ..operation import Loss, Onlooker, Op, Row, Statement
from ..sql import Queries
from .own_connection import SESSION, OwnConnection


def local(settings: Iterable[tuple[str, str]]) -> str:
    """The SQL that sets them for one transaction."""
    return "; ".join(f"SET LOCAL {name} = {value}" for name, value in settings)


SETTINGS = local(SESSION.items())  # what decides about plans
# What keeps the server busy for as long as all else of a turn together.
LONG = {"settle_jobs", "claim_pending", "claim_pending_above"}


class Transaction:
    """A cursor of ours between BEGIN and COMMIT."""

    def __init__(self, sql: Queries, raw: OwnConnection, cursor: PlainCursor) -> None:
        self._sql = sql
        self.raw = raw
        self._cursor = cursor
        self._now = 0
        self._prepare: bool | None = None
        self._onlooker: Onlooker | None = None
        self.woken: set[str] = set()

    def begin(self, op: Op[Any], lock_timeout: str, *, losable: bool) -> None:
        # What people ask is planned anew, for the tables as they are; what workers do is prepared,
        # their looks as well: to plan one takes several times as long as to run it.
        self._prepare = False if op.reads and op.loss is not Loss.WITH_WORKERS else None
        self._onlooker = op.onlooker
        raw = self.raw
        settings: list[tuple[str, str]] = []
        if raw.pooled:
            settings += raw.settings.items()
        if raw.pooled or lock_timeout != raw.settings["lock_timeout"]:
            settings.append(("lock_timeout", lock_timeout))
        if losable:
            settings.append(("synchronous_commit", "off"))
        kind = "REPEATABLE READ, READ ONLY" if op.reads else "READ COMMITTED"
        self._cursor.execute(_beginning(kind, tuple(settings), self._sql.clock.text))
        while self._cursor.nextset():
            pass
        ((now,),) = self._cursor.fetchall()
        assert isinstance(now, int)
        self._now = now

    def begin_for_application(self) -> None:
        """Begin for statements that are not ours: with the role's settings, but at our level,
        because the job is ended in it."""
        raw = self.raw
        settings = () if raw.pooled else tuple((name, "DEFAULT") for name in raw.settings)
        self._cursor.execute(_beginning("READ COMMITTED", settings, ""))

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
        if self._onlooker is not None and statement.query.name in LONG:
            self.raw.meanwhile = partial(self._onlooker.begins, statement.query.name, idle=True)
        return execute(self._cursor, statement, self._prepare)

    def undo(self) -> None:
        raw = self.raw
        if not raw.closed and raw.info.transaction_status is not TransactionStatus.IDLE:
            try:
                self._cursor.execute(b"ROLLBACK")
            except psycopg.Error:
                raw.close()

    def commit(self, name: str, *, reads: bool = False) -> None:
        """Commit, and be sure of it: an aborted transaction "commits" quietly, and a connection
        that dies meanwhile leaves open whether it was."""
        raw = self.raw
        if raw.info.transaction_status is not TransactionStatus.INTRANS:
            self.undo()
            raise StoreError(f"{name} was rolled back: a statement of it had failed")
        if raw.stale:  # it ended the transaction: that is heard only if it is read before we send
            raw.pgconn.consume_input()
        try:
            self._cursor.execute(b"COMMIT")
        except errors.IdleInTransactionSessionTimeout:  # it was over before it was asked
            raise
        except psycopg.OperationalError as error:
            if reads or not raw.closed:
                raise
            raise commit_unknown(name) from error


@lru_cache(64)
def _beginning(kind: str, settings: tuple[tuple[str, str], ...], clock: str) -> bytes:
    parts = (f"BEGIN ISOLATION LEVEL {kind}", local(settings), clock)
    return "; ".join(filter(None, parts)).encode()


def commit_unknown(name: str) -> CommitUnknown:
    """The error for who cannot know whether it is stored."""
    return CommitUnknown(
        f"the connection was lost while {name} was being committed: it may be stored or not. "
        "Look before you repeat it; an enqueue with key= and scope='any' can be repeated as it is"
    )
