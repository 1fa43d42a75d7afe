"""psycopg2, as the caller configured it.

Cursor classes, type casters and adapters of the caller neither disturb us nor are changed: rows are
read by a cursor with casters of its own, and values say themselves how they are written.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from psycopg2 import extensions

from ..operation import Execute, Row, Statement
from .base import COMMIT, ROLLBACK, BlockingDriver
from .postgres import LibpqConnection, answer, parameters, turn

CASTERS = (
    extensions.BOOLEAN, extensions.FLOAT, extensions.INTEGER, extensions.LONGINTEGER,
    extensions.UNICODE,
)  # fmt: skip
WRITTEN = {
    str: extensions.QuotedString,
    int: extensions.Int,
    float: extensions.Float,
    bytes: extensions.Binary,
}


class Psycopg2Connection(LibpqConnection, BlockingDriver):
    """A caller's psycopg2 connection."""

    @contextmanager
    def cursor(self) -> Iterator[Execute]:
        with turn(self.raw), closing(extensions.cursor(self.raw)) as cursor:
            for caster in CASTERS:
                extensions.register_type(caster, cursor)
            yield lambda statement: _execute(cursor, statement)


def _execute(cursor: Any, statement: Statement) -> list[Row]:
    if statement in (COMMIT, ROLLBACK) and not cursor.connection.autocommit:
        # Said in SQL, it would think that a transaction is still open.
        cursor.connection.commit() if statement is COMMIT else cursor.connection.rollback()
        return []
    # Without parameters psycopg2 takes the text as it is, and %% for two signs.
    values = [_written(value) for value in parameters(statement)]
    if values:
        cursor.execute(statement.query.format, values)
    else:
        cursor.execute(statement.query.text)
    return answer(statement, cursor.fetchall()) if cursor.description else []


def _written(value: Any) -> Any:
    return None if value is None else WRITTEN[type(value)](value)


KINDS = ((extensions.connection, Psycopg2Connection),)
