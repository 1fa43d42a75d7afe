"""The baton that all of Towline's writers of one SQLite file pass to each other.

It makes waiting fair, leaves room for the application's own writers, and knows who holds the
database. It never protects data: `BEGIN IMMEDIATE` does that, with or without the baton.

The protocol. Bytes of `<database>.lock` are locked, two records in it are written::

    HOLD          held by the process whose turn it is
    a ticket      held by a process that waits; its number is the time of its arrival
    EXPRESS       held by a process that goes past a turn that has come to a standstill

    arrive ── nobody waits, HOLD is free ─────────────▶ rest what is owed ──▶ BEGIN IMMEDIATE
       │                                                       ▲                     │
       └──▶ take a ticket ──▶ no lower ticket ──▶ HOLD is free ┘                the caller's turn
                                                                                     │
                           let go of HOLD ◀── note what the next one owes ◀── COMMIT or ROLLBACK

Whoever lets go and comes back finds tickets and queues behind them, so nobody overtakes. Two that
arrive at once may both think they are first; HOLD decides. The locks are POSIX record locks: the
kernel drops them when the process dies, a forked child does not inherit them, and anyone can ask
who holds one without taking it. Every wait is a poll with a deadline, so no thread is ever stuck
in the kernel; the first in line polls quickly, the others seldom.

Room for others. An application connection that finds the database taken looks again after 1, 2, 5,
10 … 100 ms; it gets in if the database is free for a good part of the time, not if it is free for
20 µs after each turn. So while writers outside Towline have been seen lately, every turn leaves a
debt of rest, 3/4 of its own length. Time that passes before the next turn pays it off; only what is
left when the next one comes at once is waited for. Without such writers nothing is owed; the first
one after a quiet minute has to get in by luck.

Standstill. A process that was stopped (Ctrl-Z, a debugger) keeps its byte locks. If the record does
not change for a while, the others go past it by EXPRESS, where SQLite's own lock allows it.
"""

from __future__ import annotations

import os
import random
import sqlite3
import sys
import threading
import time
from typing import Final

from .holder import Holder, Kind, Phase, WriterBusy, database_writer, look_at, outsider
from .instant import Held, give_back, take
from .lock_file import EXPRESS, FREE, HOLD, MAGIC, WAITING, WRITING, Baton, Record, open_baton

# Tuning; the figures are in design/005-writer-lock.md.
RETRY: Final = 0.0005  # between two looks at the database, ± half of it
HEAD_RETRY: Final = 0.00005  # between the first looks of the first in line; then ever longer
SHARE: Final = 0.75  # rest owed after a turn, as a part of the turn
LEAST_REST: Final = 0.0002  # shorter debts are carried on: a sleep costs 0.1 ms more than asked
MOST_REST: Final = 0.025
SAMPLE: Final = 0.005  # how often a turn notes the state of the log: two stats, 4 µs
MEMORY: Final = 60.0  # so long after a writer outside Towline was seen, rests are kept
PATIENCE: Final = 0.25  # so long without a sign of life is a standstill
RECHECK: Final = 1.0  # how often we look whether the lock file is still the one at its path


class WriterLock:
    """Take turns with every other Towline process at writing one database file.

    `turn` gives what one user after another acquires and releases; one of a process has the turn
    at a time, further ones wait. `holder` may be called from any thread. The lock file is opened on
    first use and again after a fork. Where there is no baton (Windows, a lock file that cannot be
    opened) turns are taken by retrying alone; `degraded` says why.
    """

    def __init__(self, database: str | os.PathLike[str]) -> None:
        # SQLite puts -wal and -shm beside the file a symbolic link points to; so do we.
        self.database: Final = os.path.realpath(database)
        self.path: Final = self.database + ".lock"
        self.degraded: str | None = None
        self._baton: Baton | None = None
        self._checked = float("-inf")
        self.standstill: bytes | None = None  # the record at which somebody was stuck

    def turn(self) -> Turn:
        return Turn(self)

    def holder(self) -> Holder:
        """Say who holds the database's writer now; opens neither the database nor its -shm."""
        me = os.getpid()
        writer = database_writer(self.database)
        baton = self.open()
        if baton is None:
            return outsider(writer) if writer else Holder("unknown")
        for byte in (HOLD, EXPRESS):
            pid = baton.owner(byte)
            if pid is None or (writer and writer != pid):
                continue
            record = baton.read(byte)
            if pid == me and record.phase != WRITING:
                continue  # another thread of ours, waiting like the one that asks
            kind: Kind = "self" if pid == me else "towline"
            if record.phase == WAITING and writer == record.pid:
                continue  # its baton waits for another connection of the same process
            phase: Phase = "writing" if writer else "waiting for the database"
            if record.pid != pid or record.phase == FREE:
                # It has just taken the lock, or a killed process left the record: not its words.
                return look_at(Holder(kind, pid, phase=phase))
            if record.phase == WRITING:
                phase = "writing"
            operation = record.operation.rstrip(b"\0").decode(errors="replace")
            return look_at(Holder(kind, pid, record.since, phase, operation))
        if writer:
            return outsider(writer)
        pid = baton.first_in_line()
        if pid is not None:
            return look_at(Holder("towline", pid, phase="waiting for its turn"))
        return Holder("unknown")

    def close(self) -> None:
        """Close the lock file, once nobody has a turn. The lock may be used again; it then opens it
        anew."""
        self._baton = None

    def open(self) -> Baton | None:
        """Return this process's baton, opening or reopening the lock file if need be."""
        if sys.platform == "win32":
            self.degraded = "there is no baton on Windows"
            return None
        now = time.monotonic()
        baton = self._baton
        if baton is not None and baton.pid == os.getpid():
            if now - self._checked < RECHECK:
                return baton
            if baton.is_at(self.path):
                self._checked = now
                return baton
        elif self.degraded and now - self._checked < RECHECK:
            return None
        self._checked = now
        try:
            self._baton = open_baton(self.path, self.database)
            self.degraded = None
        except OSError as error:
            self._baton = None
            self.degraded = f"cannot open {self.path}: {error.strerror}"
        return self._baton


class Turn:
    """The turns of one user, such as the writer of a process: one after another.

    What it holds is known at every instant, whatever exception arrives: `release` may be called at
    any time, twice, and by another thread than the one that acquired.
    """

    def __init__(self, lock: WriterLock) -> None:
        self._lock = lock
        self._baton: Baton | None = None
        self._held: Held = []  # the baton's gate
        self._record: Record | None = None  # what we have written of the present turn
        self._byte = HOLD

    def acquire(
        self, connection: sqlite3.Connection, deadline: float, operation: str = "write"
    ) -> None:
        """Wait for our turn and open a write transaction on `connection`.

        The deadline is a `time.monotonic()` value; the database is tried at least once even if it
        has passed. Raises WriterBusy with the holder, any other error of `BEGIN IMMEDIATE` as it
        is; after either nothing is locked and no transaction is open. The connection must have
        `isolation_level=None` and `timeout=0`, and no open transaction. Whoever may be interrupted
        calls this inside the `try` whose end calls `release`.
        """
        if connection.in_transaction:
            raise RuntimeError("the connection already has an open transaction")
        try:
            if self._acquire(connection, deadline, operation):
                return
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            self.release()
            raise
        self.release()
        raise WriterBusy(self._lock.holder())

    def _acquire(self, connection: sqlite3.Connection, deadline: float, operation: str) -> bool:
        self._record = None
        baton = self._baton = self._lock.open()
        if baton is None:
            return self._begin_patiently(connection, deadline)
        patience = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        return take(self._held, baton.gate, patience) and self._wait(
            baton, connection, deadline, operation
        )

    def release(self) -> None:
        """Pass the baton on, after COMMIT or ROLLBACK. Does nothing if it is not held."""
        baton = self._baton
        if not self._held or baton is None:
            return
        if baton.pid != os.getpid():  # the parent's; in this process nobody holds it
            self._held.clear()
            return
        record, self._record = self._record, None
        if record is not None:
            now = time.time()
            crowded = abs(now - record.foreign_at) < MEMORY
            if crowded or abs(now - record.released) > SAMPLE:
                owed = record.owed + SHARE * (now - record.since) if crowded else 0.0
                modified, size = _log_state(self._lock.database)
                note = record._replace(
                    phase=FREE,
                    released=now,
                    owed=min(max(owed, 0.0), MOST_REST),
                    log_modified=modified,
                    log_size=size,
                )
                baton.write(self._byte, note)
        baton.let_go_all()
        give_back(self._held)
        self._baton = None

    def _wait(
        self, baton: Baton, connection: sqlite3.Connection, deadline: float, operation: str
    ) -> bool:
        """Queue, rest, begin. False at the deadline."""
        byte = self._queue(baton, connection, deadline)
        if byte is None:
            return False
        last = baton.read(HOLD)
        foreign_at = last.foreign_at
        text = operation.encode()
        now = time.time()
        owed = 0.0
        if byte == HOLD:
            if last.owed:
                owed = last.owed - max(0.0, now - last.released)
                if owed >= LEAST_REST:
                    time.sleep(max(0.0, min(owed, deadline - time.monotonic())))
                now = time.time()
                owed = max(0.0, last.owed - max(0.0, now - last.released))
            # Nobody of ours writes while we hold the baton: if the log moved since the last turn
            # or the database is taken, there is a writer outside Towline.
            if last.log_modified and _log_state(self._lock.database) != (
                last.log_modified,
                last.log_size,
            ):
                foreign_at = now
            if not _begin(connection):
                if baton.owner(EXPRESS) is None:
                    foreign_at = now
                mine = (WAITING, baton.pid, now, last.released, 0.0, foreign_at)
                baton.write(HOLD, Record(MAGIC, *mine, operation=text))
                if not self._begin_patiently(connection, deadline):
                    baton.write(HOLD, last._replace(phase=FREE, foreign_at=foreign_at))
                    return False
                now = time.time()
        mine = (WRITING, baton.pid, now, last.released, owed, foreign_at)
        self._byte = byte
        self._record = Record(MAGIC, *mine, operation=text)
        baton.write(byte, self._record)
        return True

    def _queue(self, baton: Baton, connection: sqlite3.Connection, deadline: float) -> int | None:
        """Wait for HOLD; or, at a standstill, for EXPRESS and the database. None: too late."""
        if not baton.queue_before(None) and baton.take(HOLD):
            return HOLD
        ticket = time.monotonic_ns()
        while not baton.take(ticket):
            ticket += 1
        looked = changed = moved = time.monotonic()
        seen = baton.read_bytes(HOLD)
        line = -1
        while True:
            now = time.monotonic()
            if line != (ahead := baton.queue_before(ticket)):
                line, moved = ahead, now
            if not ahead and baton.take(HOLD):
                baton.let_go(ticket)
                return HOLD
            stuck = seen == self._lock.standstill
            if stuck or now - looked > PATIENCE / 10:
                looked = now
                record = baton.read_bytes(HOLD)
                if record != seen:
                    seen, changed = record, now
                elif (stuck or now - changed > PATIENCE) and baton.take(EXPRESS):
                    if _begin(connection):
                        self._lock.standstill = seen
                        baton.let_go(ticket)
                        return EXPRESS
                    baton.let_go(EXPRESS)
            if now >= deadline:
                return None
            # The first in line looks often, the others less so the further back they are; all of
            # them less often while nothing moves.
            pause = min(HEAD_RETRY + ahead * RETRY / 2 + (now - moved) / 8, RETRY * (ahead + 1))
            time.sleep(min(pause, deadline - now))

    def _begin_patiently(self, connection: sqlite3.Connection, deadline: float) -> bool:
        """Retry BEGIN IMMEDIATE until it succeeds or the deadline has passed."""
        while not _begin(connection):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, RETRY * (0.5 + random.random())))
        return True


def _begin(connection: sqlite3.Connection) -> bool:
    """Send BEGIN IMMEDIATE; False if somebody else is writing."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


def _log_state(database: str) -> tuple[int, int]:
    """Something that changes with every commit: modification time and size of the -wal file."""
    try:
        log = os.stat(database + "-wal")
    except OSError:
        return (0, 0)
    return (log.st_mtime_ns, log.st_size)
