"""What a psycopg error on a connection of ours means for the caller."""

from __future__ import annotations

import psycopg
from psycopg import errors

from ..errors import (
    DiskFull,
    ReadOnlyDatabase,
    SchemaMissing,
    StoreError,
    StoreUnavailable,
    TowlineError,
    WriterBusy,
)
from ..migrate import COMMAND

AGAIN = (errors.DeadlockDetected, errors.SerializationFailure)
# The server went away, has no room, or ended a connection that idled longer than the role may:
# admin shutdown, crash, cannot connect now, too many clients, idle session, idle in transaction.
_LOST = ("57P01", "57P02", "57P03", "53300", "08000", "08003", "08006", "57P05", "25P03", "25P04")


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection, not the statement, failed; another one may do."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate in _LOST


def translate(error: psycopg.Error, operation: str, where: str) -> TowlineError:
    """Give the Towline error for a driver error; nothing of the transaction was stored."""
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    match error:
        case errors.LockNotAvailable():
            return WriterBusy(
                f"{operation} waited for rows of {where} that another transaction holds: "
                f"{said}; commit sooner there, or raise lock_timeout"
            )
        case errors.DeadlockDetected() | errors.SerializationFailure():
            return StoreUnavailable(f"{operation} met others again and again: {said}")
        case errors.DiskFull():
            return DiskFull(
                f"no space left for {where}: nothing was stored; free some and repeat the call"
            )
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return SchemaMissing(f"{where} has no Towline tables: {said}; {COMMAND}")
        case errors.ReadOnlySqlTransaction():
            return ReadOnlyDatabase(
                f"{where} is read-only: {said}; a replica cannot be used, name the primary"
            )
        case errors.InsufficientPrivilege():
            return ReadOnlyDatabase(f"this role may not use {where}: {said}; see docs/postgres.md")
        case errors.QueryCanceled():
            return StoreUnavailable(
                f"{operation} was cancelled in {where}: {said}; nothing was stored. "
                "Repeat it, or raise the role's statement_timeout"
            )
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(f"{where} cannot be reached: {said}; nothing was stored")
    return StoreError(f"the database refused: {said}")
