"""What fork() does to SQLite, and how we stay out of its way.

SQLite remembers its locks per process and file; a forked child inherits the memory without the
locks. If the child opens the same file, the parent's last close may take the log away beneath it,
and what the child commits then is gone without an error. So before a fork we wait a moment until
our connections are idle, close them, and let nobody open any until it is over; both processes open
them again when used. What stayed busy (a long transaction, or the one in which the fork happens)
makes the file forbidden in the child.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import ForkedConnection

if TYPE_CHECKING:
    from .kept import Kept

FORK_WAIT = 1.0  # seconds a fork waits for operations to end
AT_EXIT = 0.5  # and the end of the program
_LOOK = 0.001

_kept: weakref.WeakSet[Kept] = weakref.WeakSet()
_guests: dict[object, tuple[str, int]] = {}  # connections of one use each: path and thread
_door: Any = threading.RLock()  # held by who adds to either
_paused: list[Kept] = []
_busy: set[str] = set()
_inherited: set[str] = set()


def watch(kept: Kept) -> None:
    """Close its connection before each fork and at the end of the program."""
    _enter(lambda: _kept.add(kept))


@contextmanager
def guest(path: str, connect: Callable[[], sqlite3.Connection]) -> Iterator[sqlite3.Connection]:
    """A connection for one use, which only its user may close: a fork waits for the end of it."""
    token, pid, user = object(), os.getpid(), (path, threading.get_ident())
    opened: list[sqlite3.Connection] = []

    def leave() -> None:
        for connection in opened:
            connection.close() if os.getpid() == pid else abandon(connection)
        _guests.pop(token, None)

    try:
        try:
            _enter(lambda: _guests.update({token: user}))
            opened.append(connect())
            yield opened[0]
        finally:
            leave()
    except BaseException:
        leave()
        raise
    if os.getpid() != pid:
        raise ForkedConnection("this transaction was begun before fork(): it is the parent's")


def _enter(add: Callable[[], None]) -> None:
    try:
        try:
            _door.acquire()
            add()
        finally:
            _close_door()
    except BaseException:
        _close_door()
        raise


def _close_door() -> None:
    if _door._is_owned():
        _door.release()


def check_inherited(path: str) -> None:
    """Raise where the file was in use when this process was forked."""
    if path in _inherited:
        raise ForkedConnection(
            f"this process was forked while {path} was in use, and SQLite's locks do not hold in "
            'it: start it with multiprocessing.get_context("spawn") or a subprocess'
        )


def abandon(connection: sqlite3.Connection) -> None:
    """Keep a parent's connection for ever: closing it here could remove the parent's log."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _before() -> None:
    deadline = time.monotonic() + FORK_WAIT
    _door.acquire()  # another thread that forks has it for a moment
    _busy.clear()
    for kept in list(_kept):
        _paused.append(kept)
        if not kept.pause(deadline):
            _busy.add(kept.path)
    me = threading.get_ident()
    while any(thread != me for _, thread in list(_guests.values())) and time.monotonic() < deadline:
        time.sleep(_LOOK)
    _busy.update(path for path, _ in list(_guests.values()))


def _after_in_parent() -> None:
    while _paused:
        _paused.pop().resume()
    _close_door()


def _after_in_child() -> None:
    global _door
    _door = threading.RLock()
    _inherited.update(_busy)
    _paused.clear()
    _guests.clear()
    for kept in list(_kept):
        kept.forget()


@atexit.register
def _at_exit() -> None:
    """Other threads still run: what they are using is left to the system."""
    deadline = time.monotonic() + AT_EXIT
    if _door.acquire(True, AT_EXIT):
        everything = list(_kept)
        _close_door()
        for kept in everything:
            kept.close(deadline)


os.register_at_fork(
    before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
