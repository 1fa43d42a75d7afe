"""What a worker knows and the database does not yet: attempts that have begun, endings to write.

The database knows what a worker has claimed. Whether a handler was called it learns only of those
that take long: a statement for each quick one would cost more than the job does. So the database
alone cannot tell, once the process was killed, a job that ran from one that still waited for its
slot. A few bytes for each in a file that is mapped into memory can, the ledger: they outlive the
process, though not the machine.

Endings stand in the order in which they are tried. One that touches what another transaction holds
is put off, longer each time, and lets the others go first: a caller that does not commit keeps the
ends of its own chains waiting, and no other.
"""

from __future__ import annotations

import itertools
import mmap
import os
import random
import stat
import struct
import tempfile
import time
from collections.abc import Collection, Iterator
from itertools import islice

from msgspec import Struct

from ..records import Ending
from ..store.lease import Begun
from .attempt import Key
from .duty import NEVER

MOST_IN_TURN = 200  # endings
MOST_BYTES_IN_TURN = 8 * 1024 * 1024  # of outputs and errors
MOST_UNWRITTEN = 20_000  # endings, and bytes of theirs, beyond which nothing more is claimed
MOST_UNWRITTEN_BYTES = 64 * 1024 * 1024
ENTRY = struct.Struct("=qq")  # job, attempt
HEAD = struct.Struct("=qq")  # the time since which nothing was written over; nothing
PLACES = 32 * 1024  # used in turn: more than one worker has unwritten at a time
HALF = PLACES // 2
FIRST, WIDTH = HEAD.size, ENTRY.size
SIZE = FIRST + PLACES * WIDTH
write_entry = ENTRY.pack_into
FIRST_RETRY, LONGEST_RETRY = 0.02, 1.0  # seconds until one that was put off is tried again


class PutOff(Struct):
    """How long an ending waits for another transaction, and until when."""

    pause: float
    until: float


class Unwritten:
    """Endings that are not written yet. Used by the pump's thread only."""

    def __init__(self) -> None:
        self._ready: dict[Key, Ending] = {}
        self._put_off: dict[Key, tuple[Ending, PutOff]] = {}
        self._pauses: dict[Key, PutOff] = {}  # of ready ones that were put off before
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._ready) + len(self._put_off)

    def __iter__(self) -> Iterator[Key]:
        yield from self._ready
        yield from self._put_off

    @property
    def full(self) -> bool:
        """Whether so much is unwritten that more would be too much to lose or to keep."""
        return len(self) > MOST_UNWRITTEN or self._bytes > MOST_UNWRITTEN_BYTES

    def add(self, ending: Ending) -> None:
        key = ending.held[:2]
        if key in self._ready or key in self._put_off:
            self.discard(key)
        self._ready[key] = ending
        self._bytes += _size(ending)

    def discard(self, key: Key) -> bool:
        """It is written, or no longer ours to write; False when it was not here."""
        ending = self._ready.pop(key, None)
        if ending is None and key in self._put_off:
            ending, _ = self._put_off.pop(key)
        if ending is None:
            return False
        self._bytes -= _size(ending)
        if self._pauses:
            self._pauses.pop(key, None)
        return True

    def put_off(self, key: Key) -> None:
        """Another transaction holds what it needs: the others go first."""
        ending = self._ready.pop(key, None)
        if ending is None:
            return
        waiting = self._pauses.pop(key, None) or PutOff(FIRST_RETRY / 2, 0.0)
        waiting.pause = min(2 * waiting.pause, LONGEST_RETRY)
        waiting.until = time.monotonic() + random.uniform(0.5, 1.0) * waiting.pause
        self._put_off[key] = ending, waiting

    @property
    def at(self) -> float:
        """When there is something to write."""
        if self._ready:
            return 0.0
        return min((waiting.until for _, waiting in self._put_off.values()), default=NEVER)

    def batch(self, now: float) -> list[Ending]:
        """Those to write next, as many as one turn should carry; at least one if any is due."""
        if self._put_off:
            for key, (ending, waiting) in list(self._put_off.items()):
                if waiting.until <= now:
                    del self._put_off[key]
                    self._ready[key] = ending
                    self._pauses[key] = waiting
        if self._bytes <= MOST_BYTES_IN_TURN:
            return list(islice(self._ready.values(), MOST_IN_TURN))
        chosen: list[Ending] = []
        size = 0
        for ending in self._ready.values():
            size += _size(ending)
            if chosen and (len(chosen) == MOST_IN_TURN or size > MOST_BYTES_IN_TURN):
                break
            chosen.append(ending)
        return chosen

    def settle(self, sent: Collection[Ending], postponed: Collection[int]) -> list[Key]:
        """A turn has written these but for the postponed ones; return what was written."""
        later = set(postponed)
        written = []
        for ending in sent:
            key = ending.held[:2]
            if later and key[0] in later:
                self.put_off(key)
            elif self.discard(key):
                written.append(key)
        return written


def _size(ending: Ending) -> int:
    size = len(ending.output or "") + len(ending.error or "")
    if ending.next is not None:
        size += sum(len(job.arguments) for job in ending.next.children)
    return size


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
        write_entry(self._file, FIRST + number % PLACES * WIDTH, job_id, attempt)

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
