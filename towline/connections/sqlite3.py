"""The standard library's sqlite3, as the caller configured it.

What an operation does depends on where the connection stands:

    in a transaction                     a savepoint; the caller commits
    idle, the driver would open one      BEGIN IMMEDIATE, left open for the caller
    idle in autocommit                   BEGIN IMMEDIATE … COMMIT, a transaction of its own

Row factories, text factories and converters of the caller neither disturb us nor are changed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar
from weakref import WeakValueDictionary

from ..errors import SchemaMissing, UnsupportedConnection
from ..operation import Op, drive
from ..sql import Queries, Row, Statement

T = TypeVar("T")


class Mark:
    """What a connection carries once it is known which file it is to; gone when it is closed.

    A connection of sqlite3 takes no attribute and no weak reference, but it keeps its functions.
    """

    NAME = "towline_mark"

    def __init__(self, paths: frozenset[str]) -> None:
        self.paths = paths

    def __call__(self) -> None:
        """Nothing in SQL calls it."""


_marks: WeakValueDictionary[int, Mark] = WeakValueDictionary()  # by the id of their connection


def execute(cursor: sqlite3.Cursor, statement: Statement) -> list[Row]:
    """Run one statement; always read all rows, since a half-read cursor pins the log."""
    text = statement.query.qmark
    if statement.rows is None:
        return cursor.execute(text, statement.params).fetchall()
    if statement.counted:
        run = cursor.execute
        return [(run(text, row).rowcount,) for row in statement.rows]
    cursor.executemany(text, statement.rows)
    return []


class Sqlite3Connection:
    """A caller's sqlite3 connection, used where it was made: in the caller's thread."""

    def __init__(self, raw: sqlite3.Connection, sql: Queries, path: str) -> None:
        self.raw = raw
        self._sql = sql
        self._path = path
        self._cursor: Any = None
        self._shielded = False

    @property
    def in_transaction(self) -> bool:
        return self.raw.in_transaction

    def run(self, op: Op[T]) -> T:
        """Run an operation in the caller's transaction, or in one as its driver would open it."""
        factory = self._read_plain()
        try:
            with self._atomic(op):
                return drive(op, self._execute)
        finally:
            self._read_as_before(factory)

    async def arun(self, op: Op[T]) -> T:
        """A sync connection belongs to the thread that awaits; there is nothing to wait for."""
        return self.run(op)

    def begin(self) -> bool:
        """Open a write transaction, unless the caller has one; True when it is ours to end."""
        if self.raw.in_transaction:
            return False
        self._say("BEGIN IMMEDIATE")
        return True

    async def abegin(self) -> bool:
        return self.begin()

    def end(self, *, commit: bool) -> None:
        self._say("COMMIT" if commit else "ROLLBACK")

    async def aend(self, *, commit: bool) -> None:
        self.end(commit=commit)

    def _say(self, word: str) -> None:
        with self._plain_text():
            self._cursor.execute(word)

    def migrations(self) -> set[str] | None:
        """The migrations this connection's database has; None when there are no tables."""
        with self._plain_text():
            if not self._look():
                return None
            return {str(name) for name, _ in self._execute(self._sql.list_migrations())}

    async def amigrations(self) -> set[str] | None:
        return self.migrations()

    def _look(self) -> bool:
        """Whether our tables are there; learns whether converters change what we read."""
        try:
            found = self._cursor.execute(self._sql.newest_migration.qmark).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return False
            raise
        ((name, at, plain_name, plain_at),) = found
        self._shielded = (name, at) != (plain_name, plain_at)
        return True

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

    @contextmanager
    def _plain_text(self) -> Iterator[None]:
        factory = self._read_plain()
        try:
            yield
        finally:
            self._read_as_before(factory)

    def _read_plain(self) -> Callable[[bytes], object]:
        """Read text as str for the length of one operation.

        A text factory cannot be set on a cursor, so it is set and put back; the connection is
        used by this thread only, so nobody sees it in between.
        """
        factory: Callable[[bytes], object] = self.raw.text_factory
        # Not self.raw.cursor: an application's subclass may have cursors of its own.
        self._cursor = sqlite3.Connection.cursor(self.raw, sqlite3.Cursor)
        self._cursor.row_factory = None
        self.raw.text_factory = str
        mark = _marks.get(id(self.raw))
        if mark is None or self._path not in mark.paths:
            try:
                self._check_file(mark)
            except BaseException:
                self._read_as_before(factory)
                raise
        return factory

    def _read_as_before(self, factory: Callable[[bytes], object]) -> None:
        self.raw.text_factory = factory
        self._cursor.close()

    def _check_file(self, mark: Mark | None) -> None:
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
        mark = Mark((mark.paths if mark else frozenset()) | {self._path})
        try:
            sqlite3.Connection.create_function(self.raw, Mark.NAME, 0, mark)
        except sqlite3.Error:  # a statement of the caller is running: look again next time
            return
        _marks[id(self.raw)] = mark

    @contextmanager
    def _atomic(self, op: Op[Any]) -> Iterator[None]:
        run = self._cursor.execute
        if self.raw.in_transaction:
            if op.reads:
                if not self._look():
                    _no_tables()
                yield
                return
            run("SAVEPOINT towline")
            try:
                self._take_writer()
                if not self._look():
                    _no_tables()
                yield
            except BaseException:
                if self.raw.in_transaction:  # some errors roll everything back by themselves
                    run("ROLLBACK TO towline")
                    run("RELEASE towline")
                raise
            run("RELEASE towline")
            return
        run("BEGIN" if op.reads else "BEGIN IMMEDIATE")
        try:
            if not self._look():
                _no_tables()
            yield
        except BaseException:
            if self.raw.in_transaction:
                run("ROLLBACK")
            raise
        if op.reads or self._autocommits():
            try:
                run("COMMIT")
            except BaseException:
                if self.raw.in_transaction:
                    run("ROLLBACK")
                raise

    def _take_writer(self) -> None:
        """Get the writer lock before the first read: SQLite then waits for it as long as the
        caller has set, while an upgrade from reading to writing fails at once."""
        try:
            self._cursor.execute(self._sql.take_writer.qmark)
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                _no_tables()
            raise

    def _autocommits(self) -> bool:
        """Whether this idle connection would have committed a plain INSERT at once."""
        mode = getattr(self.raw, "autocommit", -1)
        if mode == -1:
            return self.raw.isolation_level is None
        return bool(mode)


def _is_same(file: str, path: str) -> bool:
    try:
        return bool(file) and os.path.samefile(file, path)
    except OSError:  # one of them is not there, or not any more
        return False


def _no_tables() -> NoReturn:
    raise SchemaMissing(
        "this connection's database has no Towline tables: call app.migrate() before the "
        "transaction, and check that on= points to the database of the app"
    )
