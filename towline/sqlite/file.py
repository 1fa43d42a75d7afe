"""The database file: where it lies, whether locks hold there, whether it is still the same; and the
lock file beside it.

Never opens the database: closing another handle of it would drop SQLite's own locks.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from urllib.parse import unquote

from ..errors import DatabaseReplaced, InvalidSetting, StoreError, UnsafeFileSystem

NETWORK = frozenset(
    {"nfs", "nfs3", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "virtiofs", "vboxsf",
     "afs", "ncpfs", "ceph", "glusterfs", "fuse.glusterfs", "lustre"}
)  # fmt: skip


_OCTAL = re.compile(r"\\([0-7]{3})")  # how the table of mounts writes a blank or a backslash


def path_of(url: str) -> Path:
    """Take the path out of sqlite:///relative.db or sqlite:////absolute.db."""
    rest = url.removeprefix("sqlite:///")
    if rest == url or "?" in rest or "#" in rest:
        raise InvalidSetting(
            f"{url!r} is not a database Towline knows: use sqlite:///relative.db or "
            "sqlite:////absolute/path.db"
        )
    path = unquote(rest)
    if not path or path == ":memory:":
        raise InvalidSetting(
            "there is no in-memory mode: workers and threads could not share it; "
            "use a throw-away file in a temporary folder"
        )
    if "\0" in path:
        raise InvalidSetting("a path cannot contain U+0000")
    return Path(path)


class MissingFolder(InvalidSetting, StoreError):
    """A URL that makes no sense on this machine, or a place that is not there (yet)."""


class File:
    """One database file, by device and inode, so that a replaced one is noticed."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.log = Path(f"{os.path.realpath(self.path)}-wal")
        self._text = os.fspath(self.path)
        self.identity: tuple[int, int] | None = (
            None  # device and inode, from opening it until it is forgotten
        )

    @property
    def is_new(self) -> bool:
        try:
            return self.path.stat().st_size == 0
        except FileNotFoundError:
            return True

    def check_place(self) -> None:
        """Refuse folders that do not exist and network file systems."""
        folder = self.path.parent
        if not folder.is_dir():
            raise MissingFolder(f"the folder of the database does not exist: {folder}")
        kind = file_system(Path(os.path.realpath(self.path)))
        if kind in NETWORK:
            raise UnsafeFileSystem(
                f"{self.path} lies on {kind}: SQLite's shared memory and locks do not hold across "
                "a network; put the file on a local disk, or use PostgreSQL"
            )

    def remember(self) -> None:
        if self.identity is None:
            status = os.stat(self._text)
            self.identity = status.st_dev, status.st_ino

    def forget(self) -> None:
        self.identity = None

    def check_same(self) -> None:
        """Raise when the file at the path is no longer the one that was opened."""
        try:
            status = os.stat(self._text)
        except FileNotFoundError:
            if self.identity is None:
                return
            raise DatabaseReplaced(
                f"{self.path} was deleted while it was open; what is written now would be lost. "
                "Stop all processes, put the file back, start again"
            ) from None
        if self.identity not in (None, (status.st_dev, status.st_ino)):
            raise DatabaseReplaced(
                f"{self.path} was replaced by another file while it was open. Stop all processes, "
                "remove the -wal and -shm of the old file, start again"
            )


def file_system(path: Path, table: str = "/proc/self/mountinfo") -> str | None:
    """Type of the file system a path lies on, where the system tells (Linux)."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as lines:
            mounts = [line.split() for line in lines]
    except OSError:
        return None
    best: tuple[int, str] | None = None
    for fields in mounts:
        if "-" not in fields:
            continue
        point = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[4]))
        kind = fields[fields.index("-") + 1]
        # A later line covers an earlier one at the same place.
        if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = len(point.parts), kind
    return best[1] if best else None


def open_lock_file(path: str, database: str) -> int:
    """Open the lock file, creating it with the owner and permissions of the database."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        like = os.stat(database)
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return open_lock_file(path, database)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode) & 0o666)
        if os.geteuid() == 0:
            os.fchown(descriptor, like.st_uid, like.st_gid)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "not a regular file")
    return descriptor
