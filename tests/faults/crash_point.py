"""A crash point: the process kills itself right before or right after its n-th statement.

Every statement of both drivers is counted, BEGIN and COMMIT too, from the moment the point is
armed: of one thread, or of the whole process.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import psycopg

When = Literal["before", "after"]


class CrashPoint:
    """Where this process dies."""

    def __init__(self, number: int, when: When, *, every_thread: bool = False) -> None:
        self._number = number
        self._when = when
        self._thread = None if every_thread else threading.get_ident()
        self._mutex = threading.Lock()
        self._armed = False
        self._count = 0

    def __enter__(self) -> CrashPoint:
        self._armed = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._armed = False

    @contextmanager
    def statement(self) -> Iterator[None]:
        number = self._next()
        if number == self._number and self._when == "before":
            die()
        yield
        if number == self._number:
            die()

    def _next(self) -> int | None:
        if not self._armed or self._thread not in (None, threading.get_ident()):
            return None
        with self._mutex:
            self._count += 1
            return self._count


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()  # another thread may be the one that takes it


def install(point: CrashPoint) -> None:
    """Let every statement of this process pass the point, on connections opened from now on."""
    _install_sqlite(point)
    _install_psycopg(point)


def _counted(point: CrashPoint, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with point.statement():
            return function(*args, **kwargs)

    return run


def _install_sqlite(point: CrashPoint) -> None:
    connect = sqlite3.connect

    class Cursor(sqlite3.Cursor):
        execute = _counted(point, sqlite3.Cursor.execute)
        executemany = _counted(point, sqlite3.Cursor.executemany)
        executescript = _counted(point, sqlite3.Cursor.executescript)

    class Connection(sqlite3.Connection):
        commit = _counted(point, sqlite3.Connection.commit)
        rollback = _counted(point, sqlite3.Connection.rollback)
        execute = _counted(point, sqlite3.Connection.execute)
        executescript = _counted(point, sqlite3.Connection.executescript)

        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

    def counting_connect(*args: Any, **kwargs: Any) -> Any:
        return connect(*args, **{"factory": Connection, **kwargs})

    # By name: what is replaced here is replaced for good, in a process made for it.
    setattr(sqlite3, "connect", counting_connect)  # noqa: B010
    setattr(sqlite3, "Cursor", Cursor)  # noqa: B010


def _install_psycopg(point: CrashPoint) -> None:
    copy = psycopg.Cursor.copy

    @contextmanager
    def counted_copy(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with point.statement(), copy(*args, **kwargs) as rows:
            yield rows

    for name in ("execute", "executemany"):
        setattr(psycopg.Cursor, name, _counted(point, getattr(psycopg.Cursor, name)))
    for name in ("commit", "rollback"):
        setattr(psycopg.Connection, name, _counted(point, getattr(psycopg.Connection, name)))
    setattr(psycopg.Cursor, "copy", counted_copy)  # noqa: B010
