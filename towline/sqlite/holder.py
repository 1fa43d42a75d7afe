"""Who holds the database's writer, as far as it can be known, and what to say about it.

Knows /proc; opens neither the database nor its -shm: closing them would drop SQLite's own locks.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from .line import EXPRESS, HOLD

if TYPE_CHECKING:
    from .lock import Baton

FREE, WAITING, WRITING = 0, 1, 2  # phases of a turn, as the lock file says them
MAGIC: Final = b"towline\n"


class Record(NamedTuple):
    """What the lock file says about the present or last turn; as it is packed there.

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


Kind = Literal["towline", "foreign", "self", "unknown"]
Phase = Literal["waiting for its turn", "waiting for the database", "writing"]

# Where the WAL's write lock lies in the -shm file, and RESERVED in a file that is not in WAL mode.
_WAL_WRITE_BYTE: Final = 120
_RESERVED_BYTE: Final = 0x40000001


class Holder(Struct, frozen=True):
    """Who holds the writer of a database, as far as it can be known."""

    kind: Kind
    pid: int | None = None
    since: float | None = None  # epoch seconds; unknown for connections outside Towline
    phase: Phase | None = None
    operation: str | None = None  # what Towline was doing; None for connections outside Towline
    command: str | None = None  # command line of another process, where the system tells
    stopped: bool = False  # the process exists but does not run: SIGSTOP, Ctrl-Z, a debugger


def database_writer(database: str) -> int | None:
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
    return _look_at(Holder("self" if pid == os.getpid() else "foreign", pid, phase="writing"))


def _look_at(holder: Holder) -> Holder:
    """Add what /proc tells about another process."""
    if holder.kind == "self":
        return holder
    if holder.pid is None or holder.pid < 0:
        return replace(holder, pid=None)
    command, stopped = None, False
    try:
        with open(f"/proc/{holder.pid}/cmdline", "rb") as file:
            words = file.read(4096).rstrip(b"\0").split(b"\0")
        command = " ".join(b" ".join(words).decode(errors="replace").split()) or None
        with open(f"/proc/{holder.pid}/stat", "rb") as file:
            # The name in brackets may itself contain spaces and brackets.
            stopped = file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    except (OSError, IndexError):
        pass
    return replace(holder, command=command, stopped=stopped)


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
            f"Towline itself is writing in this process{since}{doing}"
            if holder.operation
            else "a connection outside Towline is writing in this very process"
        )
        return (
            f"The database is held by this process ({holder.pid}): {where}. If you have an open"
            " transaction, pass on=connection, or commit it first."
        )
    if holder.kind == "foreign":
        return (
            f"The database is held by a connection outside Towline in {who}. It has an open"
            " write transaction: commit sooner there, or raise lock_timeout."
        )
    if holder.kind == "towline" and holder.phase == "waiting for its turn":
        return f"The next in line, Towline in {who}, does not take its turn. Is it overloaded?"
    if holder.kind == "towline" and holder.phase == "waiting for the database":
        return (
            f"Towline in {who} is{since} itself waiting for the database{doing}: a connection"
            " outside Towline has an open write transaction. Commit sooner there, or raise"
            " lock_timeout."
        )
    if holder.kind == "towline":
        return (
            f"The database is held by Towline in {who}, writing{since}{doing}. Make its"
            " transactions shorter, or raise lock_timeout."
        )
    return (
        "The database was not free in time, and who holds it is not known: a connection outside"
        " Towline, perhaps in this very process (if you have an open transaction, pass"
        " on=connection) or in another container."
    )


def find_holder(database: str, baton: Baton | None) -> Holder:
    """Who holds the writer of a database now, with the lock file if there is one."""
    me = os.getpid()
    writer = database_writer(database)
    if baton is None:
        return _outsider(writer) if writer else Holder("unknown")
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
            return _look_at(Holder(kind, pid, phase=phase))
        if record.phase == WRITING:
            phase = "writing"
        operation = record.operation.rstrip(b"\0").decode(errors="replace")
        return _look_at(Holder(kind, pid, record.since, phase, operation))
    if writer:
        return _outsider(writer)
    pid = baton.first_in_line()
    if pid is not None:
        return _look_at(Holder("towline", pid, phase="waiting for its turn"))
    return Holder("unknown")
