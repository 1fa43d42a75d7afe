"""An operation of one statement, which commits itself.

One plain job is sent together with the hint that wakes workers, as libpq's pipeline allows: two
transactions one behind the other, in one round trip. The server has committed the job before it
begins with the hint; whatever becomes of that, the job is stored. Nothing is open while the server
waits for us, so a process that is frozen here holds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import DiagnosticField, ExecStatus
from psycopg.waiting import Ready, Wait

from ..connections.psycopg import PlainCursor
from ..operation import Op, Row, Statement, drive
from ..sql import Queries
from .own_connection import OwnConnection
from .transaction import Transaction, commit_unknown

if TYPE_CHECKING:
    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGresult

T = TypeVar("T")

UNKNOWN_NAME = b"26000"  # of a prepared statement


class Alone(Transaction):
    """A connection of ours, outside of a transaction, for an operation of one statement.

    `channel`: where workers listen; None for no hints.
    """

    def __init__(
        self, sql: Queries, raw: OwnConnection, cursor: PlainCursor, channel: str | None
    ) -> None:
        super().__init__(sql, raw, cursor)
        self._channel = channel
        self._hinted = False

    def run(self, op: Op[T]) -> T:
        """Run it. A connection that is lost meanwhile leaves open whether it is stored."""
        try:
            return drive(op, self.execute)
        except psycopg.OperationalError as error:
            if not self.raw.closed:
                raise
            raise commit_unknown(op.name) from error

    def execute(self, statement: Statement) -> list[Row]:
        query = statement.query
        if query is self._sql.enqueue_one:
            together = [statement]
            if self._channel is not None:
                queue = statement.params[query.order.index("queue")]
                together.append(self._sql.notify_one(channel=self._channel, queue=queue))
            self._hinted = True
            return send_together(self.raw, together)
        if self._hinted and query is self._sql.notify:
            return []
        return super().execute(statement)


class Sent(NamedTuple):
    """A statement as it is sent: its name on the server, its text, its values."""

    name: bytes
    text: bytes
    values: list[bytes | None]


def send_together(raw: OwnConnection, statements: Sequence[Statement]) -> list[Row]:
    """Run statements in one round trip, each in a transaction of its own; return the rows of the
    first, which are numbers. The others are hints: it is not told how they end."""
    sent = [_sent(statement) for statement in statements]
    try:
        answers = raw.wait(_exchange(raw, sent))
        _check(answers[0])
    except errors.InvalidSqlStatementName:
        # Nothing is stored: psycopg has dropped all that was prepared, as it does after a rollback.
        answers = raw.wait(_exchange(raw, sent))
        _check(answers[0])
    rows = answers[0][-1]
    return [
        tuple([int(rows.get_value(row, column) or 0) for column in range(rows.nfields)])
        for row in range(rows.ntuples)
    ]


def _sent(statement: Statement) -> Sent:
    values = [None if value is None else str(value).encode() for value in statement.params]
    if any(value is not None and b"\0" in value for value in values):  # libpq's end of a text
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return Sent(statement.query.name.encode(), statement.query.dollar.encode(), values)


def _exchange(raw: OwnConnection, sent: Sequence[Sent]) -> PQGen[list[list[PGresult]]]:
    """Send all, then read the answers to each; in the manner of psycopg's own generators."""
    pgconn = raw.pgconn
    pgconn.enter_pipeline_mode()
    for name, text, values in sent:
        if name not in raw.prepared:
            pgconn.send_prepare(name, text)
        pgconn.send_query_prepared(name, values)
        pgconn.pipeline_sync()
    while pgconn.flush():
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()
    answers: list[list[PGresult]] = [[]]
    try:
        while len(answers) <= len(sent):
            if pgconn.is_busy():
                yield Wait.R
                pgconn.consume_input()
            elif (result := pgconn.get_result()) is not None:
                if result.status == ExecStatus.PIPELINE_SYNC:
                    answers.append([])
                else:
                    answers[-1].append(result)
        pgconn.exit_pipeline_mode()
    except psycopg.OperationalError:
        if len(answers) == 1:  # else the first is committed
            raise
    for (name, _, _), results in zip(sent, answers, strict=False):
        _note_prepared(raw.prepared, name, results)
    return answers


def _note_prepared(prepared: set[bytes], name: bytes, results: Sequence[PGresult]) -> None:
    """What was prepared is known by its name from now on; what the server does not know is not."""
    failed = next((each for each in results if each.status == ExecStatus.FATAL_ERROR), None)
    if failed is None or results[0] is not failed:
        prepared.add(name)
    elif failed.error_field(DiagnosticField.SQLSTATE) == UNKNOWN_NAME:
        prepared.discard(name)


def _check(results: Sequence[PGresult]) -> None:
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise errors.error_from_result(result)
