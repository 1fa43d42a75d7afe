"""Reading connections: a few for all threads.

A thread takes the first that is free and has it for one operation, so there are as many as have
read at the same time, and no more than LIMIT however many threads there are.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..connections.sqlite3 import execute
from ..errors import StoreUnavailable
from ..operation import Op, drive
from .errors import translate
from .instant import is_running
from .kept import Kept

T = TypeVar("T")

LIMIT = 32
WAIT = 30.0  # seconds for one of them to become free
LOOK = 0.0005  # between two looks


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
        if len(self._all) < LIMIT and not any(reader.wanted for reader in self._all):
            self._all.append(Kept(self._path))
        elif tries * LOOK < WAIT:
            time.sleep(LOOK)
        else:
            raise StoreUnavailable(
                f"{LIMIT} operations have been reading {self._file} for {WAIT:g} s"
            )
