"""Sees every commit to the file, whoever made it: the wake of the SQLite engine.

`PRAGMA data_version` on a connection of its own says whether anybody has committed since the last
look. On Linux inotify says when to look: at each write to the log. That comes before the commit can
be seen (at synchronous FULL a sync lies between), and a look that sees one commit may be too early
for the next, so each write is followed by looks at growing distances, until they are as far apart
as those we take anyway. Where there is no inotify we look 20 to 50 times a second.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..errors import StoreUnavailable, TowlineError
from ..wakes.thread import WakeThread
from . import fork
from .fault import translate
from .inotify import Inotify

if TYPE_CHECKING:
    from ..wakes import Ring
    from .engine import SqliteEngine

log = logging.getLogger("towline.wakes")

# Seconds between looks: the first, how many times as long the next, the longest.
GATED = (0.0001, 1.25, 1.0)
POLLED = (0.02, 1.1, 0.05)
# Seconds from one ring to the next look; longer while commits come all the time, so that a busy
# application costs its idle workers little.
GAP, LONGEST_GAP = 0.001, 0.01
PATIENCE = 1.0  # seconds a fork waits for a look to end


class SqliteWatch:
    """Rings after every commit to an engine's file, also those of this process.

    Ends by itself, with a last ring, when the file is deleted or replaced: whoever looks then gets
    the error. Rings of commits that follow each other closely may be one.
    """

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self.path = engine.path
        self._thread = WakeThread("watch")
        self._mutex = threading.Lock()  # around the connection
        self._forking = False
        self._pid = os.getpid()
        self._connection: sqlite3.Connection | None = None
        self._version = 0
        self._inotify: Inotify | None = None

    def start(self, ring: Ring) -> None:
        """Begin to watch; the first ring comes at once, for what was committed before."""
        fork.check_owner(self._pid)
        self._thread.start(lambda: self._run(ring))
        fork.watch(self)
        _watches.add(self)

    def stop(self) -> None:
        """End the thread and close the connection; a second call does nothing."""
        self._thread.stop()

    def tell(self, queues: Collection[str]) -> None:
        """Do nothing: the commit itself is seen."""

    # ---- in the thread

    def _run(self, ring: Ring) -> None:
        try:
            self._inotify = Inotify()
        except OSError as error:
            self._poll_only(error)
        try:
            self._watch(ring)
        finally:
            with self._mutex:
                self._disconnect()
            if self._inotify is not None:
                self._inotify.close()

    def _watch(self, ring: Ring) -> None:
        first, factor, longest = GATED if self._inotify else POLLED
        step, gap = first, GAP
        while not self._thread.stopping:
            try:
                seen = self._look()
            except StoreUnavailable:  # it may be better at the next look
                seen = False
            except TowlineError:  # for good; the error is for those who asked for something
                ring(None)
                return
            if seen:
                ring(None)
                time.sleep(gap)
                gap = min(gap * 1.5, LONGEST_GAP)
            if self._inotify is None:
                first, factor, longest = POLLED
                self._thread.wait(step)
                step = first if seen else min(step * factor, longest)
            elif self._thread.wait(step, self._inotify.descriptor):
                self._inotify.clear()
                step = first
            else:
                step = min(step * factor, longest)
            if not seen:
                gap = GAP

    def _look(self) -> bool:
        """Whether anybody has committed since the last look."""
        with self._mutex:
            self._engine.file.check_same()
            if self._connection is None:
                self._open()
                return True
            before = self._version
            try:
                self._version = _version(self._connection)
            except sqlite3.Error as error:
                self._disconnect()
                raise translate(error, self._engine.file.path) from error
            return self._version != before

    def _open(self) -> None:
        """Have a connection, and with it a log to watch: while it is open nobody removes that."""
        self._engine.prepare()
        connection = self._engine.connect()
        try:
            self._version = _version(connection)
            if self._inotify is not None:
                self._inotify.add(os.fspath(self._engine.file.log))
        except OSError as error:
            assert self._inotify is not None
            self._inotify.close()
            self._inotify = None
            self._poll_only(error)
        except sqlite3.Error as error:
            connection.close()
            raise translate(error, self._engine.file.path) from error
        self._connection = connection

    def _poll_only(self, error: OSError) -> None:
        log.info("no inotify (%s): looking at %s every 20 to 50 ms", error, self.path)

    # ---- when the process forks or ends

    def let_go(self) -> bool:
        """Before a fork: close the connection, and open none until it is over."""
        if os.getpid() != self._pid:
            return True
        if not self._mutex.acquire(timeout=PATIENCE):
            return False
        self._forking = True
        self._disconnect()
        return True

    def go_on(self) -> None:
        """After a fork, in the parent: watch again; the first look rings."""
        if self._forking:
            self._forking = False
            self._mutex.release()
            self._thread.poke()

    def close(self) -> None:
        """At the end of the process: the same as `stop`."""
        self.stop()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _version(connection: sqlite3.Connection) -> int:
    ((version,),) = connection.execute("PRAGMA data_version").fetchall()
    return int(version)


_watches: weakref.WeakSet[SqliteWatch] = weakref.WeakSet()


def _after_in_parent() -> None:
    for watch in list(_watches):
        watch.go_on()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_after_in_parent)
