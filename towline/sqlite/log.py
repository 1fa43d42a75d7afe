"""Keeping the write-ahead log short, safely: copied after commits, and when the disk is full of it.

SQLite before 3.51.3 can lose pages when a passive checkpoint races a writer that starts the log
anew. So no connection of ours checkpoints by itself; a writer that commits and sees a long log does
it, on a second connection, while its own holds the writer.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress

from ..errors import TowlineError
from . import fork
from .file import File

# To look at the log costs as much as a statement: done after so many commits, or changed rows.
LOOK_COMMITS, LOOK_ROWS = 8, 100
FRAME = 4120  # one page of the usual size and its header
PAGES = 10_000
# The file keeps this size: writing over old pages makes a durable commit 1.7 times as fast as
# appending new ones. What a pinned log grew beyond it is cut off when the log starts anew.
KEPT = PAGES * FRAME * 5 // 4
PINNED = 1.0  # seconds between tries while a reader pins the log
# On a small volume the log is copied sooner: its pages must fit into the database behind it.
SHARE = 4  # the log may take so small a part of the room there is
LEAST = 100 * FRAME
STEP = 250 * FRAME  # after so much growth the room is looked at again
_HEADER, _FRAME_HEADER = 32, 24


class Log:
    """The write-ahead log behind the writer's connection. Used under the writer's lock.

    Nothing that goes wrong here is an error of an operation.
    """

    def __init__(
        self,
        file: File,
        writer: sqlite3.Connection,
        connect: Callable[[], sqlite3.Connection],
        pages: int = PAGES,
    ) -> None:
        self.commits = LOOK_COMMITS  # since the last look: another process may have left a long log
        self.rows = 0  # changed by the writer's connection until then
        self._database = os.path.realpath(file.path)
        self._file = os.fspath(file.log)
        self._writer = writer
        self._connect = connect
        self._most = self._limit = pages * FRAME
        self._looked = 0  # the size of the file when we last looked at the room
        self._not_before = 0.0

    def shorten(self) -> None:
        """After some commits: copy the log if it has become long."""
        self.commits, self.rows = 0, self._writer.total_changes
        # A foreign writer came first, or the disk is full: a later commit tries again.
        with suppress(sqlite3.Error, TowlineError, OSError):
            if self.is_long():
                self.copy()

    def make_room(self) -> bool:
        """The disk is full, perhaps of the log: copy it, so that the next commit begins it anew.

        True when there may be room now and a transaction is open again.
        """
        try:
            if not self.copy():
                return False
            self._writer.execute("BEGIN IMMEDIATE")
        except (sqlite3.Error, TowlineError, OSError):
            return False
        return True

    def is_long(self) -> bool:
        """Whether the log, not just its file, has become long. Raises OSError."""
        try:
            size = os.stat(self._file).st_size
        except FileNotFoundError:
            return False
        if not 0 <= size - self._looked < STEP and size > LEAST:
            self._looked = size
            volume = os.statvfs(os.path.dirname(self._file))
            room = volume.f_bavail * volume.f_frsize
            self._limit = min(self._most, max((room + size) // SHARE, LEAST))
        return size > self._limit and time.monotonic() >= self._not_before and self._is_written()

    def _is_written(self) -> bool:
        """Whether the frame at the limit belongs to the present log.

        Each time the log starts anew its header gets another salt, which every frame repeats;
        frames of earlier rounds have an older one. SQLite holds no lock on this file, so opening
        and closing it drops none.
        """
        with open(self._file, "rb", buffering=0) as file:
            header = file.read(_HEADER)
            frame = int.from_bytes(header[8:12]) + _FRAME_HEADER
            start = _HEADER + (self._limit - _HEADER) // frame * frame - frame
            return os.pread(file.fileno(), 8, start + 8) == header[16:24]

    def copy(self) -> bool:
        """Copy the log into the database while the writer's connection keeps every other from
        starting it anew.

        True when all of it is copied: the next commit starts the log from its beginning. A reader
        that pins it only puts this off.
        """
        with fork.guest(self._database, self._connect) as second:
            self._not_before = time.monotonic() + PINNED
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                _, pages, copied = second.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            finally:
                self._writer.execute("ROLLBACK")
        if pages != copied:
            return False
        self._not_before = 0.0
        return True
