"""What SQLite's errors on our own connections mean, and whether repeating is safe."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from ..errors import DiskFull, ReadOnlyDatabase, StoreError, StoreUnavailable, TowlineError


def translate(error: sqlite3.Error, path: Path) -> TowlineError:
    """Give the Towline error for a driver error; nothing of the transaction was stored."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    if code & 0xFF in (10, 14) and _no_descriptor_left():
        return StoreUnavailable(
            f"{path} cannot be opened: no file descriptor is left in this process or system; close "
            "what is not needed or raise the limit (ulimit -n), and repeat the call"
        )
    match code & 0xFF:
        case 5 | 6:
            return StoreUnavailable(f"{path} is locked by another writer: {error}; repeat the call")
        case 13:
            return DiskFull(
                f"no space left for {path}: nothing was stored; free some and repeat the call"
            )
        case 8 | 14:
            return ReadOnlyDatabase(
                f"{path} cannot be written by user {os.geteuid()} ({error}): "
                "the file, its -wal and -shm and their folder must be writable"
            )
        case 10:
            return StoreUnavailable(f"reading or writing {path} failed: {error}")
        case 11 | 26:
            return StoreError(f"{path} is damaged or not a database: {error}; run towline doctor")
    return StoreError(f"the database refused: {error}")


def is_full(error: sqlite3.Error) -> bool:
    """Whether there was no room on the disk."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF == sqlite3.SQLITE_FULL


def _no_descriptor_left() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False
