"""What a psycopg error on a connection of ours means for the caller."""

from __future__ import annotations

import psycopg
from psycopg import errors

from ..errors import (
    DiskFull,
    InvalidSetting,
    InvalidValue,
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
                f"{where} is read-only: {said}; a replica cannot be used, name the primary; if it "
                "is the primary, default_transaction_read_only is on for the role or the database"
            )
        case errors.InsufficientPrivilege():
            return ReadOnlyDatabase(
                f"this role may not use {where}: {said}; see docs/guides/run/postgres.md"
            )
        case errors.QueryCanceled():
            return StoreUnavailable(
                f"{operation} was cancelled in {where}: {said}; nothing was stored. "
                "Repeat it, or raise the role's statement_timeout"
            )
        case psycopg.DataError():
            return InvalidValue(f"{operation} has a value that {where} cannot hold: {said}")
        case errors.ConfigurationLimitExceeded():
            return StoreError(
                f"{operation} went over a limit of the server: {said}; raise that setting for "
                "this role"
            )
        case errors.UniqueViolation() if prefix := _id_of(error):
            return StoreError(
                f"the database refused: {said}; its ids are behind its rows, as after a copy that "
                f"left the sequence out: SELECT setval('{prefix}job_ids', "
                f"(SELECT max(id) FROM {prefix}job))"
            )
        case _ if "statement pooling" in said:
            return InvalidSetting(
                f"the pooler before {where} is in statement mode ({said}), and an operation is a "
                "transaction: set its pool_mode to transaction or session"
            )
        case _ if "prepared statement" in said and error.sqlstate in ("26000", "42P05", "08P01"):
            return StoreError(
                f"the database refused: {said}; a pooler seems to stand before {where}: pooler=True"
            )
        case psycopg.OperationalError() if error.sqlstate is not None and not is_lost(error):
            return StoreUnavailable(f"{where} refused {operation}: {said}; nothing was stored")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(f"{where} cannot be reached: {said}; nothing was stored")
    return StoreError(f"the database refused: {said}")


def _id_of(error: psycopg.Error) -> str | None:
    """How the names of the tables begin in which a new job's number was there already."""
    said = error.diag
    for table in ("job", "live", "chain"):
        if said.table_name and said.constraint_name == f"{said.table_name}_pkey":
            if said.table_name.endswith(table):
                return f"{said.schema_name}.{said.table_name.removesuffix(table)}"
    return None
