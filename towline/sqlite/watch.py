"""Sees every commit to the file, of any process: the wake of the SQLite engine.

`PRAGMA data_version` on a connection of its own says whether another has committed since the last
look. On Linux inotify says when to look: at each write to the log. That comes before the commit can
be seen (at synchronous FULL a sync lies between), and a look that sees one commit may be too early
for the next, so each write is followed by looks at growing distances, until they are as far apart
as those we take anyway. Where there is no inotify we look 20 to 50 times a second.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..wakes.thread import BackOff, WakeThread
from .errors import translate
from .inotify import Inotify
from .kept import Kept

if TYPE_CHECKING:
    from ..wakes import Changed, Ring
    from .engine import SqliteEngine

log = logging.getLogger("towline.wakes")

# Seconds between looks: the first, how many times as long the next, the longest.
GATED = (0.0001, 1.25, 1.0)
POLLED = (0.02, 1.1, 0.05)
# Seconds from one ring to the next look; longer while commits come all the time, so that a busy
# application costs its idle workers little.
GAP, LONGEST_GAP = 0.001, 0.01
BUSY = 0.02  # the same while who is rung for need not hurry: most commits are its own then


class SqliteWatch(Kept):
    """Rings after every commit to an engine's file, also those of this process.

    When the file cannot be looked at (deleted, replaced, no descriptor left) it rings once, so that
    a worker looks and gets the error, and tries again at growing distances until stopped. Rings of
    commits that follow each other closely may be one.
    """

    def __init__(self, engine: SqliteEngine) -> None:
        self._engine = engine
        self._thread = WakeThread("watch")
        self._version = 0
        self._inotify: Inotify | None = None
        super().__init__(engine.path)

    def start(self, ring: Ring) -> None:
        """Begin to watch; the first ring comes at once, for what was committed before."""
        self._thread.start(lambda: self._run(ring))

    def on_change(self, changed: Changed) -> None:
        """It cannot be lost: a file that is away is noticed by its writers."""

    def stop(self) -> None:
        """End the thread and close the connection; a second call does nothing."""
        self._thread.stop()

    def tell(self, queues: Collection[str]) -> None:
        """Do nothing: the commit itself is seen."""

    # ---- in the thread

    def _run(self, ring: Ring) -> None:
        self._inotify = None  # if there is one, it is of a process that was forked
        try:
            self._watch(ring)
        finally:
            with self.lock:
                self.shut()
            if self._inotify is not None:
                self._inotify.close()

    def _watch(self, ring: Ring) -> None:
        step, gap = GATED[0], GAP
        pause, well = BackOff(), True
        while not self._thread.stopping:
            try:
                seen = self._look()
            except Exception as error:  # the file is away, or no descriptor is left
                if well:  # the error is for those who asked for something
                    log.info("cannot watch %s just now: %s", self.path, error)
                    ring(None)
                well = False
                self._thread.pause(pause())
                continue
            if not well:
                pause, well = BackOff(), True
            if seen:
                if ring(None) is False:
                    time.sleep(BUSY)
                    if self._inotify is not None:
                        self._inotify.clear()
                    continue
                time.sleep(gap)
                gap = min(gap * 1.5, LONGEST_GAP)
            first, factor, longest = GATED if self._inotify else POLLED
            if self._inotify is None:
                self._thread.wait(step)
                again = seen
            elif again := self._thread.wait(step, self._inotify.descriptor):
                self._inotify.clear()
            step = first if again else min(max(step, first) * factor, longest)
            if not seen:
                gap = GAP

    def _look(self) -> bool:
        """Whether another connection has committed since the last look."""
        with self.lock:
            try:
                self._engine.file.check_same()
                if self.connection is None:
                    self._open()
                    return True
                before = self._version
                self._version = _version(self.connection)
            except BaseException as error:
                self.shut()
                if isinstance(error, sqlite3.Error):
                    raise translate(error, self._engine.file.path) from error
                raise
            return self._version != before

    def _open(self) -> None:
        """Have a connection, and with it a log to watch: it stays while this is open."""
        self._engine.prepare()
        self.connection = self._engine.connect()
        self._version = _version(self.connection)
        try:
            self._inotify = self._inotify or Inotify()
            self._inotify.add(os.fspath(self._engine.file.log))
        except OSError as error:
            if self._inotify is not None:
                self._inotify.close()
                self._inotify = None
            log.info("no inotify (%s): looking at %s every 20 to 50 ms", error, self.path)

    # ---- when the process forks or ends

    def freed(self) -> None:
        """After a fork: watch again; the first look rings."""
        self._thread.poke()

    def close(self, deadline: float) -> None:
        """At the end of the process: the same as `stop`."""
        self.stop()


def _version(connection: sqlite3.Connection) -> int:
    ((version,),) = connection.execute("PRAGMA data_version").fetchall()
    return int(version)
