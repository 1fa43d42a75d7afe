"""The SQLite engine: opens connections, runs operations on them, and knows the file's quirks."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from ..connections import SQLITE, Connection, recognise
from ..engine import EngineSettings, Finding, wake_channel
from ..errors import SchemaMissing, StoreUnavailable
from ..migrate import COMMAND, Migrations
from ..operation import Op, Row, Steps
from ..sql import Queries
from . import fork
from .checks import examine
from .errors import translate
from .file import File, path_of
from .kept import Readers
from .lock import Turn, WriterLock
from .log import KEPT
from .store import SqliteStore
from .writer import FULL, NORMAL, Writer

if TYPE_CHECKING:
    from ..wakes import Wake

T = TypeVar("T")

PACKAGE = "towline.sqlite"
SHRINK_PAGES = 1000  # given back at a time
BRIEF = 5  # seconds to wait for what other connections do in a moment
CLOSING = 1.0  # seconds `close` waits for operations to end


class SqliteEngine:
    """One database file, for this process."""

    name = "sqlite"
    has_one_writer = True

    def __init__(self, settings: EngineSettings) -> None:
        prefix, clock = settings.prefix, settings.clock
        self.file = File(path_of(settings.url))
        self.path = os.path.realpath(self.file.path)
        self.place = str(self.file.path)
        self.lock_timeout = settings.lock_timeout
        self.wake_channel = wake_channel(settings.url, f"public.{prefix}")
        self.sql = Queries(PACKAGE, prefix)
        self.store = SqliteStore(self.sql, *([clock] if clock else []))
        self.migrations = Migrations(PACKAGE, prefix)
        self.lock = WriterLock(self.file.path)
        self._durable = settings.durable
        self._readers = Readers(self.path, self.file.path, partial(self.connect, reads=True))
        self._writer = Writer(
            self.file, self.lock, self._connect_writer, self.connect,
            durable=self._durable, lock_timeout=self.lock_timeout,
        )  # fmt: skip

    # ---- running operations

    def run(self, op: Op[T], patience: float | None = None) -> T:
        if not op.reads:
            return self._writer.run(op, patience)
        if not self._writer.is_same_file():  # opening would make a new one of a deleted
            self.file.check_same()
        return self._readers.run(op)

    def recognise(self, raw: object) -> Connection:
        return recognise(raw, SQLITE, self.sql, self.path)

    # ---- connections

    def connect(self, *, create: bool = False, reads: bool = False) -> sqlite3.Connection:
        """Open a connection of ours: no checkpoint by itself, no waiting inside SQLite to write."""
        fork.check_inherited(self.path)
        self.file.check_same()
        place = f"file:{quote(os.fsencode(self.file.path))}?mode={'rwc' if create else 'rw'}"
        try:
            connection = sqlite3.connect(
                place, timeout=BRIEF, isolation_level=None, check_same_thread=False, uri=True
            )
            try:
                # It may have been replaced since we looked. The first read would open the
                # log, which is that of the right file, and closing would then write it to this one.
                self.file.check_same()
                connection.execute("PRAGMA wal_autocheckpoint = 0")
                connection.execute(f"PRAGMA journal_size_limit = {KEPT}")
                # Who closes a file's last connection, or recovers its log, has it alone for a
                # moment. After a first read it is ours too, and no close can shut us out.
                connection.execute("PRAGMA schema_version").fetchall()
                if reads:  # no writer is in its way; the recovery of a killed one's log is
                    connection.execute("PRAGMA query_only = ON")
                else:
                    connection.execute("PRAGMA busy_timeout = 0")
                self.file.remember()
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            if not create and not self.file.path.exists():
                raise SchemaMissing(f"there is no database at {self.place}: {COMMAND}") from None
            raise translate(error, self.file.path) from error
        return connection

    def _connect_writer(self) -> sqlite3.Connection:
        """Before the first write: make the file a database in WAL mode; safe for many at once."""
        new = self.file.is_new
        connection = self.connect(create=self.file.identity is None)
        try:
            if new:
                # Before the first table, or it stays as it is for ever.
                self._patiently(connection, "PRAGMA auto_vacuum = INCREMENTAL")
            mode = self._patiently(connection, "PRAGMA journal_mode = WAL")
            if mode != "wal":
                raise StoreUnavailable(f"{self.file.path} cannot be put into WAL mode: {mode}")
        except BaseException:
            connection.close()
            raise
        return connection

    def exists(self) -> bool:
        return not self.file.is_new

    def prepare(self) -> None:
        """See that the file can be worked with; the first write makes it."""
        fork.check_inherited(self.path)
        self.file.check_place()

    def migrate(self) -> list[str]:
        applied, _ = self.run(Op("migrate", self.migrations.migrate, self.store))
        return applied

    def check_schema(self) -> None:
        if self.file.is_new and self.file.identity is None:
            self.migrations.judge(None)
        self.run(Op("check_schema", self.migrations.check, self.sql, reads=True))

    def close(self) -> None:
        """Close every connection of this process, once idle; using the engine opens them again."""
        deadline = time.monotonic() + CLOSING
        self._writer.close(deadline)
        self._readers.close(deadline)
        self.lock.close()
        self.file.forget()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction on a connection of its own, for the application to write in."""
        with fork.guest(self.path, self.connect) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA synchronous = {FULL if self._durable else NORMAL}")
            with self._turn(connection, "a handler's transaction"):
                yield connection
                connection.execute("COMMIT")

    @contextmanager
    def _turn(self, connection: sqlite3.Connection, what: str) -> Iterator[None]:
        """A write transaction, as the only writer of all processes; rolled back unless ended."""
        pid, turn = os.getpid(), Turn(self.lock)

        def settle() -> None:
            if connection.in_transaction and os.getpid() == pid:
                connection.rollback()
            turn.release()

        try:
            try:
                if not turn.acquire(connection, time.monotonic() + self.lock_timeout, what):
                    raise self.lock.busy(what, self.lock_timeout)
                yield
            finally:
                settle()
        except BaseException:
            settle()
            raise

    def met_another(self, error: BaseException) -> bool:
        """Never: writers wait for each other here."""
        return False

    def tell_ended(self) -> None:
        """Nothing: callers of `result()` watch the file."""

    def end_wake(self) -> Wake:
        return self.wakes()[0]

    def wakes(self) -> list[Wake]:
        from .watch import SqliteWatch

        return [SqliteWatch(self)]

    def checks(self) -> Iterator[Finding]:
        def steps() -> Steps[Row]:
            (row,) = yield self.sql.describe_database()
            return row

        return examine(self.run(Op("describe", steps, reads=True)))

    def vacuum(self, pages: int) -> int:
        """Give free pages back to the file system, where the file allows it; return how many."""
        self.prepare()
        try:
            with fork.guest(self.path, self.connect) as connection:
                (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
                if mode != 2:
                    return 0
                (before,) = connection.execute("PRAGMA freelist_count").fetchone()
                with self._turn(connection, "vacuum"):
                    connection.execute("COMMIT")
                    # `execute` would stop after the first page; this steps through all of them.
                    connection.executescript(
                        f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({int(pages)}); COMMIT"
                    )
                    (after,) = connection.execute("PRAGMA freelist_count").fetchone()
        except sqlite3.Error as error:
            raise translate(error, self.file.path) from error
        return max(int(before) - int(after), 0)

    def after_prune(self) -> None:
        self.vacuum(SHRINK_PAGES)

    def _patiently(self, connection: sqlite3.Connection, text: str) -> object:
        """Some pragmas need the file for themselves; wait for the others."""
        deadline = time.monotonic() + max(self.lock_timeout, BRIEF)
        while True:
            try:
                row = connection.execute(text).fetchone()
            except sqlite3.OperationalError as error:
                if (error.sqlite_errorcode & 0xFF) not in (5, 6) or time.monotonic() > deadline:
                    raise translate(error, self.file.path) from error
                time.sleep(0.005)
            else:
                return row[0] if row else None
