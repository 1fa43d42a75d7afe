"""The attempts that a worker has begun, kept where others can read them when its process is dead.

The database knows what a worker has claimed. Whether a handler was called it learns only of those
that take long: a statement for each quick one would cost more than the job does. So the database
alone cannot tell, once the process was killed, a job that ran from one that still waited for its
slot. A few bytes for each in a file that is mapped into memory can: they outlive the process,
though not the machine.
"""

from __future__ import annotations

import itertools
import mmap
import os
import stat
import struct
import tempfile

from ..store.lease import Begun

ENTRY = struct.Struct("=qq")  # job, attempt
HEAD = struct.Struct("=qq")  # the time since which nothing was written over; nothing
PLACES = 32 * 1024  # used in turn: more than one worker has unwritten at a time
HALF = PLACES // 2
SIZE = HEAD.size + PLACES * ENTRY.size


class Ledger:
    """What one worker has begun. Written by its process only."""

    def __init__(self, worker: int) -> None:
        """Open it; OSError where that cannot be done."""
        self._path = _path(worker, create=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, SIZE)
            self._file = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        self._number = itertools.count()
        self._half_at = 0  # when the present half was begun

    def begin(self, job_id: int, attempt: int, now: int) -> None:
        """Note that the handler is called now; from whatever thread that happens in. An attempt is
        never given out again, so nothing has to be crossed out."""
        number = next(self._number)
        if number and not number % HALF:  # the half that is written over now has old ones only
            HEAD.pack_into(self._file, 0, self._half_at, 0)
            self._half_at = now
        ENTRY.pack_into(self._file, HEAD.size + number % PLACES * ENTRY.size, job_id, attempt)

    def close(self) -> None:
        """Remove it: a worker that signs off holds nothing any more."""
        try:
            os.unlink(self._path)
        except OSError:
            pass


def begun_by(worker: int) -> Begun | None:
    """What a dead worker of this machine had begun; None: unknown."""
    try:
        with open(_path(worker), "rb") as file:
            data = file.read(SIZE)
    except OSError:
        return None
    if len(data) != SIZE:
        return None
    (since, _), entries = HEAD.unpack_from(data), ENTRY.iter_unpack(data[HEAD.size :])
    return Begun(frozenset(entry for entry in entries if entry[0]), since)


def forget(worker: int) -> None:
    """Remove the ledger of a worker that was swept."""
    try:
        os.unlink(_path(worker))
    except OSError:
        pass


def _path(worker: int, *, create: bool = False) -> str:
    """In a folder that only this user can write: who could, could have jobs run once more."""
    user = os.geteuid()
    folder = os.path.join(tempfile.gettempdir(), f"towline-{user}")
    if create:
        os.makedirs(folder, 0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
        raise PermissionError(f"{folder} is not a private folder of user {user}")
    return os.path.join(folder, f"{worker}.begun")
