"""The baton that all of Windlass's writers of one SQLite file pass to each other.

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
20 µs after each turn. So while writers outside Windlass have been seen lately, every turn leaves a
debt of rest, 3/4 of its own length. Time that passes before the next turn pays it off; only what is
left when the next one comes at once is waited for. Without such writers nothing is owed.

Standstill. A process that was stopped (Ctrl-Z, a debugger) keeps its byte locks. If the record does
not change for a while, the others go past it by EXPRESS, where SQLite's own lock allows it.
"""

from __future__ import annotations

import os
import random
import sqlite3
import stat
import struct
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from windlass import errors

if sys.platform != "win32":
    import fcntl

__all__ = ["Holder", "WriterBusy", "WriterLock", "describe"]

Kind = Literal["windlass", "foreign", "self", "unknown"]
Phase = Literal["waiting for its turn", "waiting for the database", "writing"]

# Tuning; the figures are in design/005-writer-lock.md.
RETRY: Final = 0.0005  # between two looks at the database, ± half of it
HEAD_RETRY: Final = 0.00005  # between the first looks of the first in line; then ever longer
SHARE: Final = 0.75  # rest owed after a turn, as a part of the turn
PROBE: Final = 0.15  # the same while no writer outside Windlass has been seen
LEAST_REST: Final = 0.0002  # shorter debts are carried on: a sleep costs 0.1 ms more than asked
MOST_REST: Final = 0.025
SAMPLE: Final = 0.005  # how often a turn notes the state of the log: two stats, 4 µs
MEMORY: Final = 10.0  # so long after a writer outside Windlass was seen, rests are kept
PATIENCE: Final = 0.25  # so long without a sign of life is a standstill
RECHECK: Final = 1.0  # how often we look whether the lock file is still the one at its path

# Lock bytes lie behind the records, so that a look at the file with a pager shows text first.
HOLD: Final = 1024
EXPRESS: Final = 1025
TICKETS: Final = 4096

_FREE, _WAITING, _WRITING = 0, 1, 2
_MAGIC: Final = b"windlass"
_RECORD: Final = struct.Struct("<8siidddddqq48s")
_SLOTS: Final = {HOLD: 0, EXPRESS: 256}
# `struct flock`, which the fcntl module leaves to its callers.
_FLOCK: Final = struct.Struct("@hhqqi4x" if sys.platform == "linux" else "@qqihh4x")

# Where the WAL's write lock lies in the -shm file, and RESERVED in a file that is not in WAL mode.
_WAL_WRITE_BYTE: Final = 120
_RESERVED_BYTE: Final = 0x40000001


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the writer of a database, as far as it can be known."""

    kind: Kind
    pid: int | None = None
    since: float | None = None
    """Epoch seconds; unknown for connections outside Windlass."""
    phase: Phase | None = None
    operation: str | None = None
    """What Windlass was doing; None for connections outside Windlass."""
    command: str | None = None
    """Command line of another process, where the system tells."""
    stopped: bool = False
    """The process exists but does not run: SIGSTOP, Ctrl-Z, a debugger."""


class WriterBusy(errors.WriterBusy):
    """The database's writer did not become free before the deadline; says who held it."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(describe(holder))
        self.holder = holder


class WriterLock:
    """Take turns with every other Windlass process at writing one database file.

    One thread of a process acquires at a time (further ones wait); `holder` may be called from any
    thread. The lock file is opened on first use and again after a fork. Where there is no baton
    (Windows, a lock file that cannot be opened) turns are taken by retrying alone; `degraded` says
    why.
    """

    def __init__(self, database: str | os.PathLike[str]) -> None:
        # SQLite puts -wal and -shm beside the file a symbolic link points to; so do we.
        self.database: Final = os.path.realpath(database)
        self.path: Final = self.database + ".lock"
        self.degraded: str | None = None
        self._baton: _Baton | None = None
        self._checked = float("-inf")
        self._turn: _Turn | None = None
        self._standstill: bytes | None = None  # the record at which somebody was stuck

    def acquire(
        self, connection: sqlite3.Connection, deadline: float, operation: str = "write"
    ) -> None:
        """Wait for our turn and open a write transaction on `connection`.

        The deadline is a `time.monotonic()` value; the database is tried at least once even if it
        has passed. Raises WriterBusy with the holder, any other error of `BEGIN IMMEDIATE` as it
        is; after either nothing is locked and no transaction is open. The connection must have
        `isolation_level=None` and `timeout=0`, and no open transaction.
        """
        if connection.in_transaction:
            raise RuntimeError("the connection already has an open transaction")
        baton = self._open()
        if baton is None:
            if not self._begin_patiently(connection, deadline):
                raise WriterBusy(self.holder())
            return
        patience = min(max(0.0, deadline - time.monotonic()), threading.TIMEOUT_MAX)
        if not baton.gate.acquire(timeout=patience):
            raise WriterBusy(self.holder())
        try:
            turn = self._turn = self._wait(baton, connection, deadline, operation)
        except BaseException:
            self._turn = None
            if connection.in_transaction:
                connection.rollback()
            baton.let_go_all()
            baton.gate.release()
            raise
        if turn is None:
            baton.let_go_all()
            baton.gate.release()
            raise WriterBusy(self.holder())

    def release(self) -> None:
        """Pass the baton on, after COMMIT or ROLLBACK. Does nothing if it is not held."""
        turn, self._turn = self._turn, None
        if turn is None or turn.baton.pid != os.getpid():
            return
        baton, record = turn.baton, turn.record
        try:
            now = time.time()
            crowded = abs(now - record.foreign_at) < MEMORY
            owed = record.owed + (SHARE if crowded else PROBE) * (now - record.since)
            sample = crowded or abs(now - record.sampled) > SAMPLE
            modified, size = _log_state(self.database) if sample else (0, 0)
            note = _Record(
                _MAGIC,
                _FREE,
                record.pid,
                record.since,
                now,
                min(max(owed, 0.0), MOST_REST),
                record.foreign_at,
                now if sample else record.sampled,
                modified,
                size,
                record.operation,
            )
            baton.write(turn.byte, note)
        finally:
            baton.let_go(turn.byte)
            baton.gate.release()

    def holder(self) -> Holder:
        """Say who holds the database's writer now; opens neither the database nor its -shm."""
        me = os.getpid()
        writer = _database_writer(self.database)
        baton = self._open()
        if baton is None:
            return _outsider(writer) if writer else Holder("unknown")
        for byte in (HOLD, EXPRESS):
            pid = baton.owner(byte)
            if pid is None or (writer and writer != pid):
                continue
            record = baton.read(byte)
            if pid == me and record.phase != _WRITING:
                continue  # another thread of ours, waiting like the one that asks
            kind: Kind = "self" if pid == me else "windlass"
            if record.phase == _WAITING and writer == record.pid:
                continue  # its baton waits for another connection of the same process
            phase: Phase = "writing" if writer else "waiting for the database"
            if record.pid != pid or record.phase == _FREE:
                # It has just taken the lock, or a killed process left the record: not its words.
                return _look_at(Holder(kind, pid, phase=phase))
            if record.phase == _WRITING:
                phase = "writing"
            operation = record.operation.rstrip(b"\0").decode(errors="replace")
            return _look_at(Holder(kind, pid, record.since, phase, operation))
        if writer:
            return _outsider(writer)
        pid = baton.first_in_line()
        if pid is not None:
            return _look_at(Holder("windlass", pid, phase="waiting for its turn"))
        return Holder("unknown")

    def close(self) -> None:
        """Close the lock file. The lock may be used again; it then opens it anew."""
        self.release()
        self._baton = None

    # The turn ------------------------------------------------------------------------------

    def _wait(
        self, baton: _Baton, connection: sqlite3.Connection, deadline: float, operation: str
    ) -> _Turn | None:
        """Queue, rest, begin. None at the deadline."""
        byte = self._queue(baton, connection, deadline)
        if byte is None:
            return None
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
            # or the database is taken, there is a writer outside Windlass.
            if last.log_modified and _log_state(self.database) != (
                last.log_modified,
                last.log_size,
            ):
                foreign_at = now
            if not _begin(connection):
                if baton.owner(EXPRESS) is None:
                    foreign_at = now
                mine = (_WAITING, baton.pid, now, last.released, 0.0, foreign_at, last.sampled)
                baton.write(HOLD, _Record(_MAGIC, *mine, operation=text))
                if not self._begin_patiently(connection, deadline):
                    baton.write(HOLD, last._replace(phase=_FREE, foreign_at=foreign_at))
                    return None
                now = time.time()
        mine = (_WRITING, baton.pid, now, last.released, owed, foreign_at, last.sampled)
        record = _Record(_MAGIC, *mine, operation=text)
        baton.write(byte, record)
        return _Turn(baton, byte, record)

    def _queue(self, baton: _Baton, connection: sqlite3.Connection, deadline: float) -> int | None:
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
            stuck = seen == self._standstill
            if stuck or now - looked > PATIENCE / 10:
                looked = now
                record = baton.read_bytes(HOLD)
                if record != seen:
                    seen, changed = record, now
                elif (stuck or now - changed > PATIENCE) and baton.take(EXPRESS):
                    if _begin(connection):
                        self._standstill = seen
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

    def _open(self) -> _Baton | None:
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
            self._baton = _open_baton(self.path, self.database)
            self.degraded = None
        except OSError as error:
            self._baton = None
            self.degraded = f"cannot open {self.path}: {error.strerror}"
        return self._baton


class _Turn(NamedTuple):
    """What is remembered from acquire to release."""

    baton: _Baton
    byte: int
    record: _Record


class _Record(NamedTuple):
    """What the lock file says about the present or last turn; the fields of _RECORD.

    A killed holder's record still says "writing": whether somebody holds the lock, only the lock
    tells.
    """

    magic: bytes = _MAGIC
    phase: int = _FREE
    pid: int = 0
    since: float = 0.0
    released: float = 0.0
    owed: float = 0.0
    foreign_at: float = 0.0
    sampled: float = 0.0
    log_modified: int = 0
    log_size: int = 0
    operation: bytes = b""


class _Baton:
    """The open lock file of this process. One per file, however many WriterLocks there are:
    record locks belong to the process, and closing any descriptor of the file drops them all."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pid: Final = os.getpid()
        self.gate: Final = threading.Lock()
        self._held: set[int] = set()

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
        """The process that holds a byte (-1: one we cannot see from here); None: nobody."""
        if byte in self._held:
            return self.pid
        found = self._find(byte, 1)
        return found[1] if found else None

    def queue_before(self, ticket: int | None) -> int:
        """How many other processes wait before a ticket, or at all; counted up to 3."""
        found = self._find(TICKETS, ticket - TICKETS if ticket else 0)
        if not found:
            return 0
        # The kernel names any one of them: look on both sides of it.
        place = found[0]
        before = place > TICKETS and self._find(TICKETS, place - TICKETS)
        after = self._find(place + 1, ticket - place - 1 if ticket else 0)
        return 1 + bool(before) + bool(after)

    def first_in_line(self) -> int | None:
        """The process that has waited longest; None: nobody waits."""
        first, length = None, 0
        while found := self._find(TICKETS, length):
            length, first = found[0] - TICKETS, found[1]
        return first

    def _find(self, start: int, length: int) -> tuple[int, int] | None:
        """A byte in a range that another process has locked, and the process; 0: to the end."""
        fields = (fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        if sys.platform != "linux":
            fields = (start, length, 0, fcntl.F_WRLCK, os.SEEK_SET)
        try:
            answer = _FLOCK.unpack(
                fcntl.fcntl(self.descriptor, fcntl.F_GETLK, _FLOCK.pack(*fields))
            )
        except OSError:
            return None
        if sys.platform == "linux":
            kind, _, place, _, pid = answer
        else:
            place, _, pid, kind, _ = answer
        return None if kind == fcntl.F_UNLCK else (place, pid or -1)

    def read_bytes(self, byte: int) -> bytes:
        return os.pread(self.descriptor, _RECORD.size, _SLOTS[byte])

    def read(self, byte: int) -> _Record:
        """Read a record; an empty, foreign or damaged one reads as free."""
        data = os.pread(self.descriptor, _RECORD.size, _SLOTS[byte])
        if len(data) != _RECORD.size or not data.startswith(_MAGIC):
            return _Record()
        return _Record._make(_RECORD.unpack(data))

    def write(self, byte: int, record: _Record) -> None:
        try:
            os.pwrite(self.descriptor, _RECORD.pack(*record), _SLOTS[byte])
        except OSError:
            pass  # a full disk must not stop the turn that may free space on it


_batons: weakref.WeakValueDictionary[str, _Baton] = weakref.WeakValueDictionary()
_batons_guard = threading.Lock()


def _open_baton(path: str, database: str) -> _Baton:
    with _batons_guard:
        baton = _batons.get(path)
        if baton is None or not baton.is_at(path):
            baton = _batons[path] = _Baton(_open_file(path, database))
        return baton


def _open_file(path: str, database: str) -> int:
    """Open the lock file, creating it with the owner and permissions of the database."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        like = os.stat(database)
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return _open_file(path, database)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode) & 0o666)
        if os.geteuid() == 0:
            os.fchown(descriptor, like.st_uid, like.st_gid)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return descriptor


def _forget_after_fork() -> None:
    """The child drops the parent's descriptors before it has locks that closing could drop."""
    global _batons_guard
    _batons_guard = threading.Lock()
    for baton in list(_batons.values()):
        baton.close()
    _batons.clear()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_forget_after_fork)


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


# Who is it? ------------------------------------------------------------------------------------


def _database_writer(database: str) -> int | None:
    """The process that holds SQLite's write lock, from /proc/locks; None: free, or not known.

    Only looks at inode numbers: opening and closing the -shm file would drop SQLite's own locks.
    """
    places: dict[int, tuple[int, int]] = {}
    for name, byte in ((database + "-shm", _WAL_WRITE_BYTE), (database, _RESERVED_BYTE)):
        try:
            status = os.stat(name)
        except OSError:
            continue
        places[status.st_ino] = (byte, status.st_dev)
    try:
        with open("/proc/locks", encoding="ascii") as file:
            lines = file.readlines()
    except OSError:
        return None
    guess = None
    for line in lines:
        # 2: POSIX  ADVISORY  WRITE 3358 fe:00:2146469 120 120
        fields = line.split()
        if len(fields) != 8 or fields[1] != "POSIX" or fields[3] != "WRITE":
            continue
        major, minor, inode = fields[5].split(":")
        byte, device = places.get(int(inode), (-1, 0))
        end = byte if fields[7] == "EOF" else int(fields[7])
        if not int(fields[6]) <= byte <= end:
            continue
        if os.makedev(int(major, 16), int(minor, 16)) == device:
            return int(fields[4])
        # btrfs and overlayfs show another device here than stat does.
        guess = int(fields[4])
    return guess


def _outsider(pid: int) -> Holder:
    if pid == os.getpid():
        return Holder("self", pid, phase="writing")
    return _look_at(Holder("foreign", pid, phase="writing"))


def _look_at(holder: Holder) -> Holder:
    """Add what /proc tells about another process."""
    if holder.pid is None or holder.pid < 0:
        return Holder(holder.kind, None, holder.since, holder.phase, holder.operation)
    if holder.kind == "self":
        return holder
    command, stopped = None, False
    try:
        with open(f"/proc/{holder.pid}/cmdline", "rb") as file:
            words = file.read(4096).rstrip(b"\0").split(b"\0")
        command = b" ".join(words).decode(errors="replace").strip() or None
        with open(f"/proc/{holder.pid}/stat", "rb") as file:
            # The name in brackets may itself contain spaces and brackets.
            stopped = file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        pass
    return Holder(
        holder.kind, holder.pid, holder.since, holder.phase, holder.operation, command, stopped
    )


def describe(holder: Holder) -> str:
    """Say in a sentence or two who holds the writer, since when, doing what, and what to do."""
    who = f"process {holder.pid}" if holder.pid else "a process that is not visible from here"
    if holder.command:
        command = holder.command if len(holder.command) <= 80 else holder.command[:79] + "…"
        who += f" ({command})"
    since = ""
    if holder.since:
        clock = time.strftime("%H:%M:%S", time.localtime(holder.since))
        since = f" since {clock} ({max(0.0, time.time() - holder.since):.1f} s)"
    doing = f", operation {holder.operation!r}" if holder.operation else ""
    if holder.stopped:
        return (
            f"The database is held by {who}{since}{doing}, which is stopped"
            " (Ctrl-Z, SIGSTOP or a debugger). Continue it or kill it."
        )
    if holder.kind == "self":
        where = (
            f"Windlass itself is writing in this process{since}{doing}"
            if holder.operation
            else "a connection outside Windlass is writing in this very process"
        )
        return (
            f"The database is held by this process ({holder.pid}): {where}. If you have an open"
            " transaction, pass on=connection, or commit it first."
        )
    if holder.kind == "foreign":
        return (
            f"The database is held by a connection outside Windlass in {who}. It has an open"
            " write transaction: commit sooner there, or raise lock_timeout."
        )
    if holder.kind == "windlass" and holder.phase == "waiting for its turn":
        return f"The next in line, Windlass in {who}, does not take its turn. Is it overloaded?"
    if holder.kind == "windlass" and holder.phase == "waiting for the database":
        return (
            f"Windlass in {who} is{since} itself waiting for the database{doing}: a connection"
            " outside Windlass has an open write transaction. Commit sooner there, or raise"
            " lock_timeout."
        )
    if holder.kind == "windlass":
        return (
            f"The database is held by Windlass in {who}, writing{since}{doing}. Make its"
            " transactions shorter, or raise lock_timeout."
        )
    return (
        "The database was not free in time, and who holds it is not known: a connection outside"
        " Windlass, perhaps in this very process (if you have an open transaction, pass"
        " on=connection) or in another container."
    )
