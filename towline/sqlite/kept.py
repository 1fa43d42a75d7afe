"""Connections that are used by one thread at a time, and closed by nobody else meanwhile.

SQLite's driver frees what it is asked to close under a thread that is using it: the interpreter
crashes. So each connection has a lock that its user holds for the length of an operation, and who
wants to close it (`close()`, a fork, the end of the program) takes that lock first. What is busy
for longer than one wants to wait is closed by its user, once done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from . import fork


class Kept:
    """A lock and the connections behind it, opened when used."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._renew()
        fork.watch(self)

    def _renew(self) -> None:
        # Re-entrant only because such a lock knows its owner.
        lock: Any = threading.RLock()
        self.lock = lock
        self.is_owned: Callable[[], bool] = lock._is_owned
        self._closing = self._paused = False
        self.wanted = False  # somebody waits to close: who has not begun gives way

    # ---- for the kinds there are

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        raise NotImplementedError

    def shut(self) -> None:
        """Close the connections; the lock is held."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Forget the connections without closing them: they are another process's."""
        raise NotImplementedError

    def freed(self) -> None:
        """Nobody wants to close it any more: who gave way may go on."""

    # ---- using

    def let_go(self) -> None:
        """End a use, if there is one; a second call does nothing."""
        if self.is_owned():
            self.lock.release()
        if self._closing:
            self._shut_within(0.0)

    # ---- closing

    def close(self, deadline: float) -> None:
        """Close the connections, or let their user do it when done."""
        if self.is_owned() or not self._shut_within(max(deadline - time.monotonic(), 0.0)):
            self._closing = True
            if not self.is_owned():  # perhaps it was done before it could know
                self._shut_within(0.0)

    def _shut_within(self, seconds: float) -> bool:
        try:
            try:
                self.wanted = True
                if not self.lock.acquire(True, seconds):
                    return False
                self._closing = False
                self.shut()
            finally:
                self._free()
        except BaseException:
            self._free()
            raise
        return True

    def _free(self) -> None:
        self.wanted = False
        if self.is_owned():
            self.lock.release()
        self.freed()

    # ---- forking

    def pause(self, deadline: float) -> bool:
        """Before a fork: close the connections and let nobody use them; False if they are busy."""
        if self.is_owned():
            return False
        self.wanted = self._paused = True
        if not self.lock.acquire(True, max(deadline - time.monotonic(), 0.0)):
            return False
        self.shut()
        return True

    def resume(self) -> None:
        """After the fork, in the parent."""
        if self._paused:
            self._paused = False
            self._free()

    def forget(self) -> None:
        """After the fork, in the child: nobody uses them, and what is open is the parent's."""
        if self.is_open:
            self.abandon()
        self._renew()
