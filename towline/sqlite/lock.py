"""The lock of one SQLite file: its writers in all processes of Towline take turns.

It makes waiting fair, leaves room for the application's own writers, and knows who holds the
database. It never protects data: `BEGIN IMMEDIATE` does that, with or without the lock. A turn is
passed on like a *baton*: bytes of `<database>.lock` are locked, and a record in it says who has it
and what the next one owes. Who finds it taken waits in the `line`.

The locks are POSIX record locks: they belong to the process, so there is one descriptor per file
and process, however many apps use it.
"""

from __future__ import annotations

import fcntl
import operator
import os
import sqlite3
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from itertools import compress, islice
from typing import Final

from ..errors import WriterBusy
from ..operation import Onlooker
from .file import open_lock_file
from .holder import FREE, MAGIC, WAITING, WRITING, Holder, Record, describe, find_holder
from .line import EXPRESS, HOLD, TICKETS, begin_patiently, wait_in_line

# Tuning; the figures are in design/005-writer-lock.md.
SHARE: Final = 0.75  # rest owed after a turn, as a part of the turn
LEAST_REST: Final = 0.0002  # shorter debts are carried on: a sleep costs 0.1 ms more than asked
MOST_REST: Final = 0.025
SAMPLE: Final = 0.005  # how often a turn notes the state of the log: two stats, 4 µs
MEMORY: Final = 60.0  # so long after a writer outside Towline was seen, rests are kept
RECHECK: Final = 1.0  # how often we look whether the lock file is still the one at its path

_RECORD: Final = struct.Struct("<8siiddddqq48s")
_PLACES: Final = {HOLD: 0, EXPRESS: 256}
# `struct flock`, which the fcntl module leaves to its callers.
_FLOCK: Final = struct.Struct("@hhqqi4x" if sys.platform == "linux" else "@qqihh4x")


def _flock(start: int, length: int) -> bytes:
    """The question whether another process has locked a byte of a range; 0: to the end."""
    if sys.platform == "linux":
        return _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
    return _FLOCK.pack(start, length, 0, fcntl.F_WRLCK, os.SEEK_SET)


_ANY_TICKET: Final = _flock(TICKETS, 0)


class Baton:
    """The open lock file of this process. One per file, however many WriterLocks there are:
    record locks belong to the process, and closing any descriptor of the file drops them all."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pid: Final = os.getpid()
        self.gate: Final = threading.Lock()
        self._held: set[int] = set()
        self._written = b"", Record()  # the last record, as it is in the file and as it is read

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def is_at(self, path: str) -> bool:
        try:
            return os.path.samestat(os.stat(path), os.fstat(self.descriptor))
        except OSError:
            return False

    def take(self, byte: int) -> bool:
        try:
            fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            return False
        self._held.add(byte)
        return True

    def let_go(self, byte: int) -> None:
        self._held.discard(byte)
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN, 1, byte)

    def let_go_all(self) -> None:
        self._held.clear()
        fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def owner(self, byte: int) -> int | None:
        """The process that holds a byte (-1: one we cannot see from here); None if it is free."""
        if byte in self._held:
            return self.pid
        found = self._find(byte, 1)
        return found[1] if found else None

    def is_awaited(self) -> bool:
        """Whether another process waits for its turn."""
        return self._ask(_ANY_TICKET) is not None

    def queue_before(self, ticket: int) -> int:
        """How many other processes wait before a ticket; counted up to 3."""
        found = self._find(TICKETS, ticket - TICKETS)
        if not found:
            return 0
        # The kernel names any one of them: look on both sides of it.
        place = found[0]
        before = place > TICKETS and self._find(TICKETS, place - TICKETS)
        after = self._find(place + 1, ticket - place - 1)
        return 1 + bool(before) + bool(after)

    def first_in_line(self) -> int | None:
        """The process that has waited longest; None if there is no line."""
        first, length = None, 0
        while found := self._find(TICKETS, length):
            length, first = found[0] - TICKETS, found[1]
        return first

    def _find(self, start: int, length: int) -> tuple[int, int] | None:
        """A byte in a range that another process has locked, and the process; 0: to the end."""
        return self._ask(_flock(start, length))

    def _ask(self, question: bytes) -> tuple[int, int] | None:
        try:
            answer = _FLOCK.unpack(fcntl.fcntl(self.descriptor, fcntl.F_GETLK, question))
        except OSError:
            return None
        if sys.platform == "linux":
            kind, _, place, _, pid = answer
        else:
            place, _, pid, kind, _ = answer
        return None if kind == fcntl.F_UNLCK else (place, pid or -1)

    def read_bytes(self, byte: int) -> bytes:
        return os.pread(self.descriptor, _RECORD.size, _PLACES[byte])

    def read(self, byte: int) -> Record:
        """Read a record; an empty, foreign or damaged one reads as free."""
        data = os.pread(self.descriptor, _RECORD.size, _PLACES[byte])
        if data == self._written[0]:  # nobody else has had a turn since our last
            return self._written[1]
        if len(data) != _RECORD.size or not data.startswith(MAGIC):
            return Record()
        return Record._make(_RECORD.unpack(data))

    def write(self, byte: int, record: Record) -> None:
        data = _RECORD.pack(*record)
        try:
            os.pwrite(self.descriptor, data, _PLACES[byte])
        except OSError:
            pass  # a full disk must not stop the turn that may free space on it
        self._written = data, record


class WriterLock:
    """The lock of one database file, for this process.

    A `Turn` is what its users acquire and release; one of them has the turn at a time, further ones
    wait. `holder` may be called from any thread. The lock file is opened on
    first use and again after a fork. Where it cannot be, turns are taken by retrying alone.
    """

    def __init__(self, database: str | os.PathLike[str]) -> None:
        # SQLite puts -wal and -shm beside the file a symbolic link points to; so do we.
        self._given: Final = os.fspath(database)
        self.database: Final = os.path.realpath(database)
        self.path: Final = self.database + ".lock"
        self._baton: Baton | None = None
        self._checked = float("-inf")
        self.standstill: bytes | None = None  # the record at which a process was stuck

    def close(self) -> None:
        """Close the lock file, once no turn is taken; using the lock again opens it anew."""
        self._baton = None
        self._checked = float("-inf")

    def open(self) -> Baton | None:
        """Return this process's baton, opening or reopening the lock file if need be."""
        now = time.monotonic()
        baton = self._baton
        if baton is None or baton.pid == os.getpid():
            if now - self._checked < RECHECK:
                return baton
            if baton is not None and baton.is_at(self.path):
                self._checked = now
                return baton
        self._checked = now
        try:
            self._baton = open_baton(self.path, self.database)
        except OSError:
            self._baton = None
        return self._baton

    def holder(self) -> Holder:
        """Say who holds the database's writer now; opens neither the database nor its -shm."""
        return find_holder(self.database, self.open())

    def busy(self, what: str, patience: float) -> WriterBusy:
        """The error for who has waited so many seconds in vain: it names the holder."""
        return WriterBusy(
            f"{what} waited {patience:g} s for the writer of {self._given}: "
            f"{describe(self.holder())}"
        )


class Turn:
    """The turns of one user, such as the writer of a process: one after another.

    What it holds is known at every instant, whatever exception arrives: `release` may be called at
    any time, twice, and by another thread than the one that acquired.
    """

    def __init__(self, lock: WriterLock) -> None:
        self.lock = lock
        self._baton: Baton | None = None
        # How to release the baton's gate: it is taken exactly when this is not empty.
        self._held: list[Callable[[], None]] = []
        self._record: Record | None = None  # what we have written of the present turn
        self._byte = HOLD
        self.onlooker: Onlooker | None = None  # who wants to know when it has to wait

    def acquire(
        self, connection: sqlite3.Connection, deadline: float, operation: str = "write"
    ) -> bool:
        """Wait for our turn and open a write transaction on `connection`.

        The deadline is a `time.monotonic()` value; the database is tried at least once even if it
        has passed. False when it was not free in time; errors of `BEGIN IMMEDIATE` are raised as
        they are. After either nothing is locked and no transaction is open. The connection must
        have `isolation_level=None` and `timeout=0`, and no open transaction. Who may be interrupted
        calls this inside the `try` whose end calls `release`.
        """
        self._record = None
        try:
            baton = self._baton = self.lock.open()
            if baton is None:
                began = begin_patiently(self, connection, deadline)
            else:
                gate = baton.gate
                # Taken and noted in one call into C, during which no exception arrives: `instant`.
                self._held.extend(compress((gate.release,), map(gate.acquire, (False,))))
                if not self._held:
                    patience = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
                    self._held.extend(
                        compress((gate.release,), map(gate.acquire, (True,), (patience,)))
                    )
                began = bool(self._held) and self._wait(baton, connection, deadline, operation)
        except BaseException:
            if connection.in_transaction:
                connection.rollback()
            self.release()
            raise
        if not began:
            self.release()
        return began

    def release(self) -> None:
        """Pass the baton on, after COMMIT or ROLLBACK. Does nothing if it is not held."""
        baton = self._baton
        if not self._held or baton is None:
            return
        if baton.pid != os.getpid():  # the parent's; in this process it is free
            self._held.clear()
            return
        record, self._record = self._record, None
        if record is not None:
            now = time.time()
            crowded = abs(now - record.foreign_at) < MEMORY
            if crowded or abs(now - record.released) > SAMPLE:
                owed = record.owed + SHARE * (now - record.since) if crowded else 0.0
                modified, size = _log_state(self.lock.database)
                note = record._replace(
                    phase=FREE,
                    released=now,
                    owed=min(max(owed, 0.0), MOST_REST),
                    log_modified=modified,
                    log_size=size,
                )
                baton.write(self._byte, note)
        baton.let_go_all()
        held = self._held
        deque(map(operator.call, islice(iter(held.pop, None), len(held))), 0)  # as it was taken
        self._baton = None

    def _wait(
        self, baton: Baton, connection: sqlite3.Connection, deadline: float, operation: str
    ) -> bool:
        """Queue, rest, begin. False at the deadline."""
        byte: int | None = HOLD
        alone = not baton.is_awaited() and baton.take(HOLD)
        if not alone:
            byte = wait_in_line(self, baton, connection, deadline)
        if byte is None:
            return False
        last = baton.read(HOLD)
        foreign_at = last.foreign_at
        text = operation.encode()
        now = time.time()
        if alone and self._is_told(last, baton, text, now) and self.begin(connection):
            self._byte, self._record = HOLD, last
            return True
        owed = 0.0
        if byte == HOLD:
            if last.owed:
                owed = last.owed - max(0.0, now - last.released)
                if owed >= LEAST_REST:
                    if self.onlooker is not None:
                        self.onlooker.begins("rest", idle=True)
                    time.sleep(max(0.0, min(owed, deadline - time.monotonic())))
                now = time.time()
                owed = max(0.0, last.owed - max(0.0, now - last.released))
            # No process of ours writes while we hold the baton: if the log moved since the last
            # turn or the database is taken, there is a writer outside Towline. A log without
            # anything in it is a new one: whoever closed the file last has removed it.
            if last.log_modified:
                log = _log_state(self.lock.database)
                if log[1] and log != (last.log_modified, last.log_size):
                    foreign_at = now
            if not self.begin(connection):
                if baton.owner(EXPRESS) is None:
                    foreign_at = now
                mine = (WAITING, baton.pid, now, last.released, 0.0, foreign_at)
                baton.write(HOLD, Record(MAGIC, *mine, operation=text))
                if not begin_patiently(self, connection, deadline):
                    baton.write(HOLD, last._replace(phase=FREE, foreign_at=foreign_at))
                    return False
                now = time.time()
        mine = (WRITING, baton.pid, now, last.released, owed, foreign_at)
        self._byte = byte
        self._record = Record(MAGIC, *mine, operation=text)
        baton.write(byte, self._record)
        return True

    @staticmethod
    def _is_told(last: Record, baton: Baton, operation: bytes, now: float) -> bool:
        """Whether the record says already what this turn would write: our last turn was a moment
        ago and the same. Nobody owes anything, so what it says of the time does not matter."""
        return (
            last.phase == WRITING
            and last.pid == baton.pid
            and last.operation == operation
            and 0.0 <= now - last.since < SAMPLE
            and abs(now - last.foreign_at) >= MEMORY
        )

    @staticmethod
    def begin(connection: sqlite3.Connection) -> bool:
        """Send BEGIN IMMEDIATE; False if another connection is writing."""
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


_batons: weakref.WeakValueDictionary[str, Baton] = weakref.WeakValueDictionary()
_batons_guard = threading.Lock()


def open_baton(path: str, database: str) -> Baton:
    with _batons_guard:
        baton = _batons.get(path)
        if baton is None or not baton.is_at(path):
            baton = _batons[path] = Baton(open_lock_file(path, database))
        return baton


def _forget_after_fork() -> None:
    """The child drops the parent's descriptors before it has locks that closing could drop."""
    global _batons_guard
    _batons_guard = threading.Lock()
    for baton in list(_batons.values()):
        baton.close()
    _batons.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
