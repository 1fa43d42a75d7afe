"""A writer lock with one user: who acquires is who releases."""

from __future__ import annotations

import os
import sqlite3

from towline.sqlite.lock import WriterLock


class Turns(WriterLock):
    """Takes one turn after another."""

    def __init__(self, database: str | os.PathLike[str]) -> None:
        super().__init__(database)
        self._mine = self.turn()

    def acquire(
        self, connection: sqlite3.Connection, deadline: float, operation: str = "write"
    ) -> None:
        self._mine.acquire(connection, deadline, operation)

    def release(self) -> None:
        self._mine.release()

    def close(self) -> None:
        self.release()
        super().close()
