"""The open lock file of a process: byte locks, tickets, and the record of the present turn.

`lock` decides when to take what; here is only how. The locks are POSIX record locks: they belong to
the process, so there is one descriptor per file and process, however many apps use it.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
import threading
import weakref
from typing import Final, NamedTuple

if sys.platform != "win32":
    import fcntl

# Lock bytes lie behind the records, so that a look at the file with a pager shows text first.
HOLD: Final = 1024
EXPRESS: Final = 1025
TICKETS: Final = 4096

FREE, WAITING, WRITING = 0, 1, 2
MAGIC: Final = b"towline\n"
_RECORD: Final = struct.Struct("<8siiddddqq48s")
_SLOTS: Final = {HOLD: 0, EXPRESS: 256}
# `struct flock`, which the fcntl module leaves to its callers.
_FLOCK: Final = struct.Struct("@hhqqi4x" if sys.platform == "linux" else "@qqihh4x")


class Record(NamedTuple):
    """What the lock file says about the present or last turn; the fields of _RECORD.

    After a turn that left nothing to note, or whose process was killed, it still says "writing":
    whether somebody holds the lock, only the lock tells.
    """

    magic: bytes = MAGIC
    phase: int = FREE
    pid: int = 0
    since: float = 0.0
    released: float = 0.0
    owed: float = 0.0
    foreign_at: float = 0.0
    log_modified: int = 0
    log_size: int = 0
    operation: bytes = b""


class Baton:
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

    def read(self, byte: int) -> Record:
        """Read a record; an empty, foreign or damaged one reads as free."""
        data = os.pread(self.descriptor, _RECORD.size, _SLOTS[byte])
        if len(data) != _RECORD.size or not data.startswith(MAGIC):
            return Record()
        return Record._make(_RECORD.unpack(data))

    def write(self, byte: int, record: Record) -> None:
        try:
            os.pwrite(self.descriptor, _RECORD.pack(*record), _SLOTS[byte])
        except OSError:
            pass  # a full disk must not stop the turn that may free space on it


_batons: weakref.WeakValueDictionary[str, Baton] = weakref.WeakValueDictionary()
_batons_guard = threading.Lock()


def open_baton(path: str, database: str) -> Baton:
    with _batons_guard:
        baton = _batons.get(path)
        if baton is None or not baton.is_at(path):
            baton = _batons[path] = Baton(_open_file(path, database))
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
