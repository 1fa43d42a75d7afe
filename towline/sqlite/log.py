"""The writer's care for the log: shortened after commits, copied when the disk is full of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from ..errors import TowlineError
from . import fork
from .checkpoint import Checkpoint
from .file import File

# To look at the log costs as much as a statement: done after so many commits, or changed rows.
LOOK_COMMITS, LOOK_ROWS = 8, 100


class Log:
    """The write-ahead log, and the second connection that copies it. Used under the writer's lock.

    Nothing that goes wrong here is an error of an operation.
    """

    def __init__(self, file: File, connect: Callable[[], sqlite3.Connection]) -> None:
        self.connect = connect
        self.checkpoint = Checkpoint(file)
        self._connection: sqlite3.Connection | None = None
        self.commits = (
            LOOK_COMMITS  # since it was looked at: somebody else may have left a long one
        )
        self.rows = 0  # changed by the writer's connection until then

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def shut(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        self.commits, self.rows = LOOK_COMMITS, 0
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        """Forget the connection: it is another process's."""
        if self._connection is not None:
            fork.abandon(self._connection)
        self._connection = None

    def shorten(self, writer: sqlite3.Connection) -> None:
        """After some commits: copy the log if it has become long."""
        self.commits, self.rows = 0, writer.total_changes
        try:
            if self.checkpoint.due():
                self._copy(writer)
        except (sqlite3.Error, TowlineError, OSError):
            pass  # a foreign writer came first, or the disk is full: a later commit tries again

    def make_room(self, writer: sqlite3.Connection) -> bool:
        """The disk is full, perhaps of the log: copy it, so that the next commit begins it anew.

        True when there may be room now and a transaction is open again.
        """
        try:
            if not self._copy(writer):
                return False
            writer.execute("BEGIN IMMEDIATE")
        except (sqlite3.Error, TowlineError, OSError):
            return False
        return True

    def _copy(self, writer: sqlite3.Connection) -> bool:
        if self._connection is None:
            self._connection = self.connect()
        return self.checkpoint.run(writer, self._connection)
