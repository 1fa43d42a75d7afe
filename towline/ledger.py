"""Which attempts of a worker have begun, kept where others can read it when its process is dead.

A job that was claimed ahead is recorded as begun only when it takes long: a statement for each
quick one would cost more than it does. So the database alone cannot tell, once the process was
killed, a job that ran from one that still waited for a slot. A few bytes for each in a file that is
mapped into memory can: they outlive the process, though not the machine.
"""

from __future__ import annotations

import itertools
import mmap
import os
import stat
import struct
import tempfile

ENTRY = struct.Struct("=qq")  # job, attempt
PLACES = 32 * 1024  # used in turn: more than one worker has unwritten at a time


class Ledger:
    """What one worker has claimed ahead and begun. Written by its process only."""

    def __init__(self, worker: int) -> None:
        """Open it; OSError where that cannot be done."""
        self._path = _path(worker, create=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, PLACES * ENTRY.size)
            self._entries = mmap.mmap(descriptor, PLACES * ENTRY.size)
        finally:
            os.close(descriptor)
        self._number = itertools.count()

    def begin(self, job_id: int, attempt: int) -> None:
        """Note that the handler is called now; from whatever thread that happens in. An attempt is
        never given out again, so nothing has to be crossed out."""
        place = next(self._number) % PLACES
        ENTRY.pack_into(self._entries, place * ENTRY.size, job_id, attempt)

    def close(self) -> None:
        """Remove it: whoever signs off holds nothing any more."""
        try:
            os.unlink(self._path)
        except OSError:
            pass


def begun_by(worker: int) -> set[tuple[int, int]] | None:
    """The (job, attempt) that a dead worker of this machine had begun; None: nobody knows."""
    try:
        with open(_path(worker), "rb") as file:
            data = file.read(PLACES * ENTRY.size)
    except OSError:
        return None
    if len(data) != PLACES * ENTRY.size:
        return None
    return {(job, attempt) for job, attempt in ENTRY.iter_unpack(data) if job}


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
