"""What SQLite's errors on our own connections mean, and whether repeating is safe."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from ..errors import DiskFull, ReadOnlyDatabase, StoreError, StoreUnavailable, TowlineError


def translate(error: sqlite3.Error, path: Path) -> TowlineError:
    """Give the Towline error for a driver error; nothing of the transaction was stored."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    user = os.geteuid() if hasattr(os, "geteuid") else "this user"
    match code & 0xFF:
        case 5 | 6:
            return StoreUnavailable(f"{path} is locked by another writer: {error}; repeat the call")
        case 13:
            return DiskFull(
                f"no space left for {path}: nothing was stored; free some and repeat the call"
            )
        case 8 | 14:
            return ReadOnlyDatabase(
                f"{path} cannot be written by user {user} ({error}): "
                "the file, its -wal and -shm and their folder must be writable"
            )
        case 10:
            return StoreUnavailable(f"reading or writing {path} failed: {error}")
        case 11 | 26:
            return StoreError(f"{path} is damaged or not a database: {error}; run towline doctor")
    return StoreError(f"the database refused: {error}")
