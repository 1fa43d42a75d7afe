"""What callers' connections to PostgreSQL have in common, whatever the driver.

The driver opens a transaction at our first statement, unless it is in autocommit. An operation that
met others crosswise (a deadlock) is undone and run again, a few times.
"""

from __future__ import annotations

import asyncio
import re
import threading
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from ..errors import UnsupportedConnection
from ..operation import Op, Query, Row, Statement, Steps
from .base import AS_IT_IS, BEGIN, COMMIT, ROLLBACK, Around, CallerConnection

IDLE = 0  # libpq's PQTRANS_IDLE
DEADLOCK = "40P01"
MET_ANOTHER = frozenset({DEADLOCK, "40001"})  # another transaction: deadlock, serialization

# The number of the caller's own transaction, as messages show it, if it has written anything.
TRANSACTION = Query(
    "transaction",
    "SELECT (pg_current_xact_id_if_assigned()::text::bigint % 4294967296)::text",
)()
BEGIN_OURS = Query("begin_ours", "BEGIN ISOLATION LEVEL READ COMMITTED")()
OPENED_BY_THE_DRIVER = Around(undo=(ROLLBACK,))
OURS = Around(BEGIN_OURS, COMMIT, (ROLLBACK,))

_new_turn = threading.Lock()
_turns: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_awaited_turns: WeakKeyDictionary[Any, asyncio.Lock] = WeakKeyDictionary()
_encode = msgspec.json.Encoder().encode


class PostgresConnection(CallerConnection):
    """A caller's connection to a PostgreSQL database; one of another name is refused."""

    pauses = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.2, 0.2)

    def __init__(self, raw: Any, database: str | None = None) -> None:
        super().__init__(raw)
        if database is not None and (theirs := self.database) not in (None, database):
            raise UnsupportedConnection(
                f"on= is a connection to database {theirs}, and this app is on {database}: no "
                "worker would see the job. If they are one database under two names of a pooler, "
                "say pooler=True"
            )

    @property
    @abstractmethod
    def database(self) -> str | None:
        """The name of its database, if the driver knows it."""

    def around(self, op: Op[Any]) -> Around:
        if not self.autocommits:
            return OPENED_BY_THE_DRIVER
        return AS_IT_IS if op.single else OURS

    def opening(self) -> Statement | None:
        return BEGIN if self.autocommits else None

    def repeats(self, error: Exception) -> Steps[bool]:
        """After a deadlock; not if somebody waits for what the caller's transaction held before our
        operation: it would only meet him again.

        The server says who waits for which transaction; ours had one of its own, below the
        savepoint, and its locks are let go.
        """
        if sqlstate(error) != DEADLOCK:
            return False
        if not self.in_transaction:
            return True
        detail = getattr(error, "detail", None) or getattr(
            getattr(error, "diag", None), "message_detail", None
        )
        ((own,),) = yield TRANSACTION
        return own is None or own not in re.findall(r"\d+", detail or "")


class LibpqConnection(PostgresConnection):
    """One of psycopg or psycopg2, which say the same in the same words."""

    @property
    def database(self) -> str | None:
        return str(self.raw.info.dbname)

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.info.transaction_status != IDLE)

    @property
    def autocommits(self) -> bool:
        return bool(self.raw.autocommit)


def turn(raw: Any) -> threading.RLock:
    """Threads that share a connection do one operation after the other, each of them whole."""
    with _new_turn:
        return _turns.setdefault(raw, threading.RLock())


def awaited_turn(raw: Any) -> asyncio.Lock:
    """The same for tasks."""
    return _awaited_turns.setdefault(raw, asyncio.Lock())


def sqlstate(error: BaseException) -> str | None:
    """The code of a server's error, as any of the drivers says it."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return code if isinstance(code, str) else None


def parameters(statement: Statement) -> Sequence[Any]:
    """Many rows are one parameter, numbered where the statement asks for it."""
    if statement.rows is None:
        return statement.params
    picks = statement.picks
    records: list[dict[str, Any]] = [{name: row[i] for name, i in picks} for row in statement.rows]
    if "n" in statement.query.records:
        for number, record in enumerate(records):
            record["n"] = number
    return (_encode(records).decode(),)


def answer(statement: Statement, rows: list[Row]) -> list[Row]:
    """What the store is told: rows, or of each row that was sent whether it changed something."""
    if not statement.counted:
        return rows
    passed = {number for (number,) in rows}
    return [(int(number in passed),) for number in range(len(statement.rows or ()))]
