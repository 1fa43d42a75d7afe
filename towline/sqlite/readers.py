"""Reading connections: a few for all threads, each used by one at a time.

A thread takes the first that is free and has it for one operation, so there are as many as have
read at the same time, and no more than LIMIT however many threads there are.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..connections.sqlite3 import execute
from ..errors import StoreUnavailable
from ..operation import Op, drive
from ..sql import Row, Statement
from . import fork
from .errors import translate
from .instant import is_running
from .kept import Kept

T = TypeVar("T")

LIMIT = 32
PATIENCE = 30.0  # seconds for one of them to become free
LOOK = 0.0005  # between two looks


class Reader(Kept):
    """One of them."""

    def __init__(self, path: str) -> None:
        self.connection: sqlite3.Connection | None = None
        super().__init__(path)

    @property
    def is_open(self) -> bool:
        return self.connection is not None

    def shut(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        if self.connection is not None:
            fork.abandon(self.connection)
        self.connection = None

    def settle(self) -> None:
        """End a use, wherever it was interrupted; a second time does nothing."""
        if not self.is_owned():
            return
        if self.connection is not None and self.connection.in_transaction:
            try:
                self.connection.rollback()
            except sqlite3.Error:
                self.shut()
        self.let_go()


class Readers:
    """Runs reading operations, each in a transaction that sees one state of the database."""

    def __init__(self, path: str, file: Path, connect: Callable[[], sqlite3.Connection]) -> None:
        self._path = path
        self._file = file
        self._connect = connect
        self._all: list[Reader] = []

    def run(self, op: Op[T]) -> T:
        """Run one operation."""
        reader: Reader | None = None
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
                    reader.settle()
        except BaseException as error:
            if reader is not None:
                reader.settle()
            if isinstance(error, sqlite3.Error):
                raise translate(error, self._file) from error
            raise

    def close(self, deadline: float) -> None:
        for reader in list(self._all):
            reader.close(deadline)

    def _read(self, reader: Reader, op: Op[T]) -> T:
        connection = reader.connection
        if connection is None:
            connection = reader.connection = self._connect()
        cursor = connection.cursor()

        def run(statement: Statement) -> list[Row]:
            return execute(cursor, statement)

        cursor.execute("BEGIN")
        result = drive(op, run)
        cursor.execute("COMMIT")
        cursor.close()
        return result

    def _was_left(self, reader: Reader) -> bool:
        """This thread has it: in a call further out, or two interrupts left it behind."""
        if is_running(Readers.run.__code__, 1):
            return False
        reader.settle()
        return True

    def _grow(self, tries: int) -> None:
        """Have one more, or wait a little for one of those there are."""
        wanted = any(reader.wanted for reader in self._all)
        if len(self._all) < LIMIT and not wanted:
            self._all.append(Reader(self._path))
        elif tries * LOOK < PATIENCE:
            time.sleep(LOOK)
        else:
            raise StoreUnavailable(
                f"{LIMIT} operations have been reading {self._file} for {PATIENCE:g} s"
            )
