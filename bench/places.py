"""A new, empty database for every run, and what can be read off it from outside."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from bench import machine
from tests.servers import DurableServer

MEMORY = Path("/dev/shm")
DISK = Path(__file__).resolve().parent / ".data"


class Place(ABC):
    """One database; `address` is what an adapter is told."""

    address: str
    folder: Path  # on the disk that is measured

    @abstractmethod
    def size(self) -> int:
        """Bytes that it takes now, its log left out."""

    def log(self) -> int | None:
        """How far the server's log has come, in bytes; None where there is no server."""
        return None

    def server_cpu(self) -> float | None:
        """Seconds that the server has used; None where there is none."""
        return None

    def server_pid(self) -> int | None:
        return None


class File(Place):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "bench.db"
        self.address = str(self.path)

    def size(self) -> int:
        if not self.path.exists():
            return 0
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return self.path.stat().st_size


class Database(Place):
    """A database of the run's server, reached over TCP, which every driver can."""

    def __init__(self, server: DurableServer, url: str, folder: Path) -> None:
        self.folder = folder
        self.address = server.over_tcp(url)
        self._server = server
        self._admin = psycopg.connect(server.url, autocommit=True)
        self._url = url

    def _ask(self, text: bytes) -> int:
        ((value,),) = self._admin.execute(text).fetchall()
        return int(value)

    def size(self) -> int:
        name = self.address.rpartition("/")[2]
        return self._ask(f"SELECT pg_database_size('{name}')".encode())

    def log(self) -> int:
        return self._ask(b"SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")

    def server_cpu(self) -> float | None:
        pid = self.server_pid()
        return None if pid is None else machine.cpu(pid)

    def server_pid(self) -> int | None:
        return self._server.pid

    def close(self) -> None:
        self._admin.close()
        self._server.drop(self._url)


class Places:
    """Makes places for the runs of one engine."""

    def __init__(self, disk: Path, server: DurableServer | None = None) -> None:
        disk.mkdir(parents=True, exist_ok=True)
        self.disk = disk
        self.server = server

    @contextmanager
    def new(self, kind: str = "disk") -> Iterator[Place]:
        """A database on the "disk" or in "memory", deleted afterwards."""
        folder = Path(
            tempfile.mkdtemp(prefix="bench-", dir=self.disk if kind == "disk" else MEMORY)
        )
        try:
            if self.server is None:
                yield File(folder)
            else:
                place = Database(self.server, self.server.create(), folder)
                try:
                    yield place
                finally:
                    place.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def in_memory(folder: Path) -> bool:
    """Whether a folder lies on a file system that forgets."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return False
    above = [str(folder.resolve()), *map(str, folder.resolve().parents)]
    kinds = {point: kind for point, kind in mounts if point in above}
    return bool(kinds) and kinds[max(kinds, key=len)] in ("tmpfs", "ramfs")


@contextmanager
def journal() -> Iterator[Path]:
    """A file for what ran; in memory if it can be: syncs of the database do not carry it."""
    folder = MEMORY if os.access(MEMORY, os.W_OK) else None
    handle, name = tempfile.mkstemp(prefix="bench-journal-", dir=folder)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
