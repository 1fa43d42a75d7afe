"""Keeping the write-ahead log short, safely.

SQLite before 3.51.3 can lose pages when a passive checkpoint races a writer that starts the log
anew. So no connection of ours checkpoints by itself; whoever commits and sees a long log does it,
on a second connection, while its own holds the writer.
"""

from __future__ import annotations

import os
import sqlite3
import time

from .file import File

FRAME = 4120  # one page of the usual size and its header
PAGES = 10_000
# The file keeps this size: writing over old pages makes a durable commit 1.7 times as fast as
# appending new ones. What a pinned log grew beyond it is cut off when the log starts anew.
KEPT = PAGES * FRAME * 5 // 4
PATIENCE = 1.0  # seconds between tries while a reader pins the log
# On a small volume the log is copied sooner: its pages must fit into the database behind it.
SHARE = 4  # the log may take so small a part of the room there is
LEAST = 100 * FRAME
STEP = 250 * FRAME  # after so much growth the room is looked at again
_HEADER, _FRAME_HEADER = 32, 24


class Checkpoint:
    """Decides when the log is long, and copies it into the database under the writer lock."""

    def __init__(self, file: File, pages: int = PAGES) -> None:
        self._log = os.fspath(file.log)
        self._most = self._limit = pages * FRAME
        self._looked = 0  # the size of the file when we last looked at the room
        self._not_before = 0.0
        self.done = 0

    def due(self) -> bool:
        """Whether the log, not just its file, has become long. Raises OSError."""
        try:
            size = os.stat(self._log).st_size
        except FileNotFoundError:
            return False
        if not 0 <= size - self._looked < STEP and size > LEAST:
            self._looked = size
            self._limit = min(self._most, max((self._room() + size) // SHARE, LEAST))
        return size > self._limit and time.monotonic() >= self._not_before and self._is_written()

    def _room(self) -> int:
        """Bytes that are free where the log lies."""
        if not hasattr(os, "statvfs"):
            return SHARE * self._most
        volume = os.statvfs(os.path.dirname(self._log))
        return volume.f_bavail * volume.f_frsize

    def _is_written(self) -> bool:
        """Whether the frame at the limit belongs to the present log.

        Each time the log starts anew its header gets another salt, which every frame repeats;
        frames of earlier rounds have an older one. SQLite holds no lock on this file, so opening
        and closing it drops none.
        """
        descriptor = os.open(self._log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            header = os.pread(descriptor, _HEADER, 0)
            frame = int.from_bytes(header[8:12]) + _FRAME_HEADER
            start = _HEADER + (self._limit - _HEADER) // frame * frame - frame
            return os.pread(descriptor, 8, start + 8) == header[16:24]
        finally:
            os.close(descriptor)

    def run(self, guard: sqlite3.Connection, worker: sqlite3.Connection) -> bool:
        """Copy the log while `guard` holds the writer, so that nobody can start it anew.

        True when all of it is copied: the next commit starts the log from its beginning. A reader
        that pins it only puts this off.
        """
        self._not_before = time.monotonic() + PATIENCE
        guard.execute("BEGIN IMMEDIATE")
        try:
            _, pages, copied = worker.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            guard.execute("ROLLBACK")
        if pages != copied:
            return False
        self._not_before = 0.0
        self.done += 1
        return True
