"""A writer lock with one user: who acquires is who releases."""

from __future__ import annotations

import os
import sqlite3

from towline import errors
from towline.sqlite.holder import Holder, describe
from towline.sqlite.lock import Turn, WriterLock


class WriterBusy(errors.WriterBusy):
    """The writer did not become free before the deadline; says who held it."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(describe(holder))
        self.holder = holder


class Turns(WriterLock):
    """Takes one turn after another."""

    def __init__(self, database: str | os.PathLike[str]) -> None:
        super().__init__(database)
        self._mine = Turn(self)

    def acquire(
        self, connection: sqlite3.Connection, deadline: float, operation: str = "write"
    ) -> None:
        if not self._mine.acquire(connection, deadline, operation):
            raise WriterBusy(self.holder())

    def release(self) -> None:
        self._mine.release()

    def close(self) -> None:
        self.release()
        super().close()
