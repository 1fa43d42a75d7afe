"""The standard library's sqlite3, as the caller configured it.

SQLite has one writer: a transaction of ours begins as a writer, and in the caller's an operation
becomes one before it reads. Row factories, text factories and converters of the caller neither
disturb us nor are changed.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakValueDictionary

from ..errors import SchemaMissing, UnsupportedConnection
from ..operation import Execute, Op, Query, Row, Statement, Steps, execute
from ..sql import Queries
from .base import BEGIN, COMMIT, ROLLBACK, Around, BlockingDriver

BEGIN_WRITING = Query("begin_writing", "BEGIN IMMEDIATE")()
READING = Around(BEGIN, COMMIT, (ROLLBACK,))
WRITING = Around(BEGIN_WRITING, COMMIT, (ROLLBACK,))
LEFT_OPEN = Around(BEGIN_WRITING, None, (ROLLBACK,))


class KnownFile:
    """What a connection carries once it is known which file it is to; gone when it is closed.

    A connection of sqlite3 takes no attribute and no weak reference, but it keeps its functions.
    """

    NAME = "towline_known_file"

    def __init__(self, paths: frozenset[str]) -> None:
        self.paths = paths

    def __call__(self) -> None:
        """Nothing in SQL calls it."""


# By the id of their connection.
_known_files: WeakValueDictionary[int, KnownFile] = WeakValueDictionary()


class Sqlite3Connection(BlockingDriver):
    """A caller's sqlite3 connection, used where it was made: in the caller's thread."""

    raw: sqlite3.Connection

    def __init__(self, raw: sqlite3.Connection, sql: Queries, path: str) -> None:
        super().__init__(raw)
        self._sql = sql
        self._path = path
        self._shielded = False

    @property
    def in_transaction(self) -> bool:
        return self.raw.in_transaction

    @property
    def autocommits(self) -> bool:
        mode = getattr(self.raw, "autocommit", -1)  # from Python 3.12 on
        return self.raw.isolation_level is None if mode == -1 else bool(mode)

    def around(self, op: Op[Any]) -> Around:
        if op.reads:
            return READING
        return WRITING if self.autocommits else LEFT_OPEN

    def opening(self) -> Statement | None:
        return BEGIN_WRITING

    def ready(self, op: Op[Any], inside: bool) -> Steps[None]:
        """Get the writer lock before the first read: SQLite then waits for it as long as the
        caller has set, while an upgrade from reading to writing fails at once."""
        self._shielded = False
        try:
            if inside and not op.reads:
                yield self._sql.take_writer()
            ((name, at, plain_name, plain_at),) = yield self._sql.newest_migration()
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            raise SchemaMissing(
                "this connection's database has no Towline tables: check that on= points to the "
                "database of the app, and call app.migrate()"
            ) from error
        self._shielded = (name, at) != (plain_name, plain_at)  # converters change what we read

    def cursor(self) -> AbstractContextManager[Execute]:
        return self

    def __enter__(self) -> Execute:
        """Text is read as str for the length of one operation.

        A text factory cannot be set on a cursor, so it is set and put back; the connection is
        used by this thread only, so nobody sees it in between.
        """
        raw = self.raw
        self._factory = raw.text_factory
        # Not raw.cursor: an application's subclass may have cursors of its own.
        self._cursor = sqlite3.Connection.cursor(raw, sqlite3.Cursor)
        self._cursor.row_factory = None
        raw.text_factory = str
        known = _known_files.get(id(raw))
        if known is None or self._path not in known.paths:
            try:
                self._check_file(known)
            except BaseException:
                self.__exit__()
                raise
        return self._execute

    def __exit__(self, *_: object) -> None:
        self.raw.text_factory = self._factory
        self._cursor.close()

    def _execute(self, statement: Statement) -> list[Row]:
        if self._shielded and statement.rows is None:
            return self._execute_shielded(statement)
        return execute(self._cursor, statement)

    def _execute_shielded(self, statement: Statement) -> list[Row]:
        """Converters look at a column's declared type; an expression has none."""
        query = statement.query
        if not query.qmark.startswith(("SELECT", "WITH")):
            return execute(self._cursor, statement)
        if query.width is None:
            described = self._cursor.execute(
                f"SELECT * FROM ({query.qmark}) LIMIT 0", statement.params
            )
            query.width = len(described.description)
            described.fetchall()
        names = [f"c{number}" for number in range(query.width)]
        text = (
            f"WITH plain({', '.join(names)}) AS ({query.qmark}) "
            f"SELECT {', '.join('+' + name for name in names)} FROM plain"
        )
        rows: list[Row] = self._cursor.execute(text, statement.params).fetchall()
        return rows

    def _check_file(self, known: KnownFile | None) -> None:
        """Refuse a connection to another file than the app's: no worker would look there.

        One in memory has no file, and is what a test of an application may use.
        """
        files = self._cursor.execute("PRAGMA database_list").fetchall()
        main = files[0][2]
        if main and not any(_is_same(file, self._path) for _, _, file in files):
            raise UnsupportedConnection(
                f"on= is a connection to {main}, and this app is on {self._path}: no worker would "
                "find the job. Connect to app.url, or point the app there with app.use()"
            )
        known = KnownFile((known.paths if known else frozenset()) | {self._path})
        try:
            sqlite3.Connection.create_function(self.raw, KnownFile.NAME, 0, known)
        except sqlite3.Error:  # a statement of the caller is running: look again next time
            return
        _known_files[id(self.raw)] = known


def _is_same(file: str, path: str) -> bool:
    try:
        return bool(file) and os.path.samefile(file, path)
    except OSError:  # one of them is not there, or not any more
        return False


KINDS = ((sqlite3.Connection, Sqlite3Connection),)
