"""The SQLite part of `towline doctor`: the library's version, the file and its size."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from ..engine import NOTE, OK, Finding
from ..operation import Row
from ..store.ground import int_of

SAFE_SQLITE = (3, 51, 3)
MANY_PAGES = 1000  # that are free; 4 MB of the usual size


def examine(described: Row) -> Iterator[Finding]:
    """Findings from what `describe_database` answered."""
    if sqlite3.sqlite_version_info < SAFE_SQLITE:
        yield Finding(
            NOTE,
            "sqlite",
            f"SQLite {sqlite3.sqlite_version} can damage a file when an automatic checkpoint meets "
            "a writer (mended in 3.51.3); connections of Towline avoid it",
            "on your own connections to this file: PRAGMA wal_autocheckpoint = 0, or upgrade",
        )
    else:
        yield Finding(OK, "sqlite", f"SQLite {sqlite3.sqlite_version}")
    yield Finding(OK, "file", "in WAL mode, on no network file system that is known")
    free = int_of(described[0])
    if free < MANY_PAGES:
        yield Finding(OK, "size", f"free pages: {free}")
    else:
        yield Finding(
            NOTE,
            "size",
            f"free pages: {free}; they are used again, and workers give some back every minute if "
            "the file was made with auto_vacuum",
            "if `towline vacuum` gives none back it was not; to change that, stop everything and "
            "run: PRAGMA auto_vacuum = INCREMENTAL; VACUUM",
        )
