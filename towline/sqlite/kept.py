"""Connections that are used by one thread at a time, and closed by no other meanwhile.

SQLite's driver frees what it is asked to close under a thread that is using it: the interpreter
crashes. So each connection has a lock that its user holds for the length of an operation, and who
wants to close it (`close()`, a fork, the end of the program) takes that lock first. What is busy
for longer than one wants to wait is closed by its user, once done.

The writer is one of them. Of readers there are a few for all threads: a thread takes the first that
is free and has it for one operation, so there are as many as have read at the same time, and no
more than READERS however many threads there are.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..errors import StoreUnavailable
from ..operation import Op, drive, execute
from . import fork
from .errors import translate
from .instant import is_running

T = TypeVar("T")

READERS = 32
WAIT = 30.0  # seconds for one of them to become free
LOOK = 0.0005  # between two looks


class Kept:
    """A lock and the connection behind it, opened when used."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.connection: sqlite3.Connection | None = None
        self._renew()
        fork.watch(self)

    def _renew(self) -> None:
        # Re-entrant only because such a lock knows its owner.
        lock: Any = threading.RLock()
        self.lock = lock
        self.is_owned: Callable[[], bool] = lock._is_owned
        self._closing = self._paused = False
        self.wanted = False  # a thread waits to close: who has not begun gives way

    def freed(self) -> None:
        """No thread wants to close it any more: who gave way may go on."""

    # ---- using

    def let_go(self) -> None:
        """End a use, wherever it was interrupted; a second call does nothing."""
        if not self.is_owned():
            return
        if self.connection is not None and self.connection.in_transaction:
            self.roll_back(self.connection)
        self.lock.release()
        if self._closing:
            self._shut_within(0.0)

    def roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            connection.rollback()
        except sqlite3.Error:
            self.shut()

    # ---- closing

    def shut(self) -> None:
        """Close the connection; the lock is held. A file's last one checkpoints."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def close(self, deadline: float) -> None:
        """Close the connection, or let its user do it when done."""
        if self.is_owned() or not self._shut_within(max(deadline - time.monotonic(), 0.0)):
            self._closing = True
            if not self.is_owned():  # perhaps it was done before it could know
                self._shut_within(0.0)

    def _shut_within(self, seconds: float) -> bool:
        try:
            try:
                self.wanted = True
                if not self.lock.acquire(True, seconds):
                    return False
                self._closing = False
                self.shut()
            finally:
                self._free()
        except BaseException:
            self._free()
            raise
        return True

    def _free(self) -> None:
        self.wanted = False
        if self.is_owned():
            self.lock.release()
        self.freed()

    # ---- forking

    def pause(self, deadline: float) -> bool:
        """Before a fork: close the connection and let no thread use it; False if it is busy."""
        if self.is_owned():
            return False
        self.wanted = self._paused = True
        if not self.lock.acquire(True, max(deadline - time.monotonic(), 0.0)):
            return False
        self.shut()
        return True

    def resume(self) -> None:
        """After the fork, in the parent."""
        if self._paused:
            self._paused = False
            self._free()

    def forget(self) -> None:
        """After the fork, in the child: no thread uses it, and what is open is the parent's."""
        if self.connection is not None:
            fork.abandon(self.connection)
            self.connection = None
        self._renew()


class Readers:
    """Runs reading operations, each in a transaction that sees one state of the database."""

    def __init__(self, path: str, file: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path = path
        self._file = file
        self._connect = connect
        self._all: list[Kept] = []

    def run(self, op: Op[T]) -> T:
        reader: Kept | None = None
        tries = 0
        try:
            try:
                while reader is None:
                    for found in self._all:
                        if found.wanted or (found.is_owned() and not self._was_left(found)):
                            continue
                        reader = found
                        if found.lock.acquire(False):
                            break
                    else:
                        reader = None
                        self._grow(tries)
                        tries += 1
                return self._read(reader, op)
            finally:
                if reader is not None:
                    reader.let_go()
        except BaseException as error:
            if reader is not None:
                reader.let_go()
            if isinstance(error, sqlite3.Error):
                raise translate(error, self._file) from error
            raise

    def close(self, deadline: float) -> None:
        for reader in list(self._all):
            reader.close(deadline)

    def _read(self, reader: Kept, op: Op[T]) -> T:
        connection = reader.connection
        if connection is None:
            connection = reader.connection = self._connect()
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        result = drive(op, partial(execute, cursor))
        cursor.execute("COMMIT")
        cursor.close()
        return result

    def _was_left(self, reader: Kept) -> bool:
        """This thread has it: in a call further out, or two interrupts left it behind."""
        if is_running(Readers.run.__code__, 1):
            return False
        reader.let_go()
        return True

    def _grow(self, tries: int) -> None:
        """Have one more, or wait a little for one of those there are."""
        if len(self._all) < READERS and not any(reader.wanted for reader in self._all):
            self._all.append(Kept(self._path))
        elif tries * LOOK < WAIT:
            time.sleep(LOOK)
        else:
            raise StoreUnavailable(
                f"{READERS} operations have been reading {self._file} for {WAIT:g} s"
            )
