"""The SQLite engine: opens connections, runs operations on them, and knows the file's quirks."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from ..connections import Connection, recognise_sqlite
from ..connections.sqlite3 import execute
from ..errors import StoreUnavailable, WriterBusy
from ..migrate import Migrations
from ..operation import Op, drive
from ..sql import Queries, Row, Statement
from ..store import Store
from . import fork
from .checkpoint import KEPT
from .fault import translate
from .file import File, path_of
from .holder import WriterBusy as Waited
from .lock import WriterLock
from .writer import FULL, NORMAL, Writer

if TYPE_CHECKING:
    from ..wakes import Wake

T = TypeVar("T")

PACKAGE = "towline.sqlite"
SHRINK_PAGES = 1000  # given back at a time
PATIENCE = 5  # seconds to wait for what takes others only a moment


class SqliteEngine:
    """One database file, for this process."""

    name = "sqlite"

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        lock_timeout: float,
        durable: bool,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.file = File(path_of(url))
        self.path = os.path.realpath(self.file.path)
        self.prefix = prefix
        self.lock_timeout = lock_timeout
        self.sql = Queries(PACKAGE, prefix)
        self.store = Store(self.sql, *([clock] if clock else []))
        self.migrations = Migrations(PACKAGE, prefix)
        self.lock = WriterLock(self.file.path)
        self._durable = durable
        self._pid = os.getpid()
        self._local = threading.local()
        self._readers: list[tuple[weakref.ref[threading.Thread], sqlite3.Connection]] = []
        self._mutex = threading.Lock()
        self._prepared = False
        self._writer = self._new_writer()
        fork.watch(self)

    # ---- running operations

    def run(self, op: Op[T], patience: float | None = None) -> T:
        """Run an operation on a connection of ours, in a transaction of its own."""
        op.accept()
        if not op.reads:
            return self._writer.run(op, patience)
        self.file.check_same()  # before opening, which would make a new file of a deleted one
        try:
            connection = self._begin_reading()
            cursor = connection.cursor()

            def run(statement: Statement) -> list[Row]:
                return execute(cursor, statement)

            try:
                return drive(op, run)
            finally:
                if connection.in_transaction:
                    cursor.execute("COMMIT")
                cursor.close()
        except sqlite3.Error as error:
            raise translate(error, self.file.path) from error

    async def arun(self, op: Op[T]) -> T:
        """The same without blocking the event loop: one hop to a thread for the whole operation."""
        return await asyncio.to_thread(self.run, op)

    def recognise(self, raw: object) -> Connection:
        """Wrap a caller's connection."""
        return recognise_sqlite(raw, self.sql, self.path)

    # ---- connections

    def connect(self) -> sqlite3.Connection:
        """Open a connection of ours: WAL, no checkpoint by itself, no waiting inside SQLite."""
        try:
            connection = sqlite3.connect(
                self.file.path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("PRAGMA wal_autocheckpoint = 0")
                connection.execute(f"PRAGMA journal_size_limit = {KEPT}")
                # Whoever closes a file's last connection, or recovers its log, has it alone for a
                # moment. After a first read it is ours too, and nobody can shut us out by closing.
                connection.execute("PRAGMA schema_version").fetchall()
                connection.execute("PRAGMA busy_timeout = 0")
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise translate(error, self.file.path) from error
        return connection

    def prepare(self) -> None:
        """Make the file a database in WAL mode, once per process; safe for many at once."""
        with self._mutex:
            if self._prepared:
                return
            fork.check_inherited(self.path)
            self.file.check_place()
            new = self.file.is_new
            connection = self.connect()
            try:
                if new:
                    # Before the first table, or it stays as it is for ever.
                    self._patiently(connection, "PRAGMA auto_vacuum = INCREMENTAL")
                mode = self._patiently(connection, "PRAGMA journal_mode")
                if mode != "wal":
                    mode = self._patiently(connection, "PRAGMA journal_mode = WAL")
                if mode != "wal":
                    raise StoreUnavailable(f"{self.file.path} cannot be put into WAL mode: {mode}")
            finally:
                connection.close()
            self.file.remember()
            self._prepared = True

    def migrate(self) -> list[str]:
        """Create the tables or bring them up to date."""
        applied, _ = self.run(self.migrations.migrate(self.store))
        return applied

    def check_schema(self) -> None:
        self.run(self.migrations.check(self.sql))

    def close(self) -> None:
        """Close every connection of this process. The engine opens them again when used."""
        if os.getpid() != self._pid:
            return
        self._writer.close()
        with self._mutex:
            for _, connection in self._readers:
                connection.close()
            self._readers.clear()
        self._local = threading.local()
        self._prepared = False
        self._writer = self._new_writer()

    def let_go(self) -> bool:
        """Before a fork: close what is idle; True if nothing is open any more."""
        if os.getpid() != self._pid:
            return True
        with self._mutex:
            reading = [reader for reader in self._readers if reader[1].in_transaction]
            for reader in self._readers:
                if reader not in reading:
                    reader[1].close()
            self._readers = reading
        return self._writer.let_go() and not reading

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction on a connection of its own, for the application to write in."""
        self.file.check_same()
        connection = self.connect()
        try:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA synchronous = {FULL if self._durable else NORMAL}")
            try:
                self.lock.acquire(
                    connection, time.monotonic() + self.lock_timeout, "a handler's transaction"
                )
            except Waited as busy:
                raise WriterBusy(
                    f"the transaction waited {self.lock_timeout:g} s for the writer of "
                    f"{self.file.path}: {busy}"
                ) from None
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            finally:
                self.lock.release()
        finally:
            connection.close()

    def tell_ended(self) -> None:
        """Nothing: whoever waits watches the file."""

    def ends(self) -> Wake:
        return self.wakes()[0]

    def wakes(self) -> list[Wake]:
        from .watch import SqliteWatch

        return [SqliteWatch(self)]

    def vacuum(self, pages: int) -> int:
        """Give free pages back to the file system, where the file allows it; return how many."""
        freed = 0
        self.prepare()
        self.file.check_same()
        connection = self.connect()
        try:
            (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
            if mode != 2:
                return 0
            (before,) = connection.execute("PRAGMA freelist_count").fetchone()
            self.lock.acquire(connection, time.monotonic() + self.lock_timeout, "vacuum")
            try:
                connection.execute("COMMIT")
                # `execute` would stop after the first page; this steps through all of them.
                connection.executescript(
                    f"BEGIN IMMEDIATE; PRAGMA incremental_vacuum({int(pages)}); COMMIT"
                )
                (after,) = connection.execute("PRAGMA freelist_count").fetchone()
                freed = int(before) - int(after)
            finally:
                self.lock.release()
        except sqlite3.Error as error:
            raise translate(error, self.file.path) from error
        finally:
            connection.close()
        return max(freed, 0)

    def shrink(self) -> None:
        self.vacuum(SHRINK_PAGES)

    def _new_writer(self) -> Writer:
        return Writer(
            self.file, self.lock, self.connect,
            durable=self._durable, lock_timeout=self.lock_timeout,
        )  # fmt: skip

    def _begin_reading(self) -> sqlite3.Connection:
        """This thread's connection, in a transaction that sees one state of the database."""
        connection = self._reader()
        try:
            connection.execute("BEGIN")
        except sqlite3.ProgrammingError:  # a fork in another thread has closed it
            self._local.reader = None
            connection = self._reader()
            connection.execute("BEGIN")
        return connection

    def _reader(self) -> sqlite3.Connection:
        """This thread's reading connection."""
        fork.check_owner(self._pid)
        connection: sqlite3.Connection | None = getattr(self._local, "reader", None)
        if connection is None:
            connection = self.connect()
            connection.execute("PRAGMA query_only = ON")
            # No writer blocks a reader; the recovery of a killed one's log does, for a moment.
            connection.execute(f"PRAGMA busy_timeout = {PATIENCE * 1000}")
            self._local.reader = connection
            with self._mutex:
                alive = []
                for reference, old in self._readers:
                    thread = reference()
                    if thread is not None and thread.is_alive():
                        alive.append((reference, old))
                    else:
                        old.close()
                self._readers = [*alive, (weakref.ref(threading.current_thread()), connection)]
        return connection

    def _patiently(self, connection: sqlite3.Connection, text: str) -> object:
        """Some pragmas need the file for themselves; wait for the others."""
        deadline = time.monotonic() + max(self.lock_timeout, PATIENCE)
        while True:
            try:
                row = connection.execute(text).fetchone()
            except sqlite3.OperationalError as error:
                if (error.sqlite_errorcode & 0xFF) not in (5, 6) or time.monotonic() > deadline:
                    raise translate(error, self.file.path) from error
                time.sleep(0.005)
            else:
                return row[0] if row else None
