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

FRAME = 4120  # one page and its header
PAGES = 10_000
KEPT = 1_000 * FRAME  # what the file is cut back to when the log starts anew
PATIENCE = 1.0  # seconds between tries while a reader pins the log


class Checkpoint:
    """Decides when the log is long, and copies it into the database under the writer lock."""

    def __init__(self, file: File, pages: int = PAGES) -> None:
        self._log = os.fspath(file.log)
        self._limit = pages * FRAME
        self._not_before = 0.0
        self.done = 0

    def due(self) -> bool:
        try:
            long = os.stat(self._log).st_size > self._limit
        except FileNotFoundError:
            return False
        return long and time.monotonic() >= self._not_before

    def run(self, guard: sqlite3.Connection, worker: sqlite3.Connection) -> None:
        """Copy the log while `guard` holds the writer, so that nobody can start it anew.

        The next commit starts the log from its beginning and cuts the file. A reader that pins
        the log only puts this off.
        """
        self._not_before = time.monotonic() + PATIENCE
        guard.execute("BEGIN IMMEDIATE")
        try:
            _, pages, copied = worker.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        finally:
            guard.execute("ROLLBACK")
        if pages == copied:
            self._not_before = 0.0
            self.done += 1
