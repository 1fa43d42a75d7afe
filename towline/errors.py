"""Every error Towline raises; typed only where a caller can act on it.

TowlineError
    NotFound
    InvalidState
    InvalidSetting
    InvalidTask
    InvalidArguments
    PayloadTooLarge
    OutputError
    InvalidValue
    BlockerError
    DuplicateKey
    StillNeeded
    LeaseLost
    ChainFailed
        ChainCancelled
    WaitTimeout
    UnsupportedConnection
    WrongIsolation
    StoreError
        StoreUnavailable
            WriterBusy
            DiskFull
        CommitUnknown
        ReadOnlyDatabase
        DatabaseReplaced
        UnsafeFileSystem
        ForkedConnection
        SchemaMissing
        SchemaMismatch
"""

from __future__ import annotations


class TowlineError(Exception):
    """Base of all errors of this package."""


class NotFound(TowlineError, LookupError):
    """No such job or chain: never stored, rolled back, deleted or pruned."""


class InvalidState(TowlineError):
    """The job or chain is in a state in which this cannot be done; the text names it."""


class InvalidSetting(TowlineError, ValueError):
    """A setting or option that makes no sense."""


class InvalidTask(TowlineError, TypeError):
    """A function that cannot be a task, or a task that is not registered."""


class InvalidArguments(TowlineError, TypeError):
    """Arguments that do not fit the task, refused before the database is touched."""


class PayloadTooLarge(TowlineError, ValueError):
    """Arguments or an output over the payload limit."""


class OutputError(TowlineError, TypeError):
    """A result that cannot be stored: it is no JSON value of the declared type."""


class InvalidValue(TowlineError, ValueError):
    """A text or number that this database cannot hold; nothing of the operation was stored."""


class BlockerError(TowlineError, ValueError):
    """A blocker given twice, one that does not exist, or a cycle; nothing was stored."""


class DuplicateKey(TowlineError):
    """The key is taken and on_conflict="raise" was asked for."""

    def __init__(self, text: str, chain_id: int) -> None:
        super().__init__(text)
        self.chain_id = chain_id


class StillNeeded(TowlineError):
    """A chain cannot be deleted while jobs outside the set wait for it."""

    def __init__(self, text: str, dependents: tuple[int, ...]) -> None:
        super().__init__(text)
        self.dependents = dependents


class LeaseLost(TowlineError):
    """The attempt is not this worker's any more; what was to be written with it is not kept."""


class ChainFailed(TowlineError):
    """The chain that was waited for failed."""

    def __init__(self, text: str, chain_id: int, reason: str | None) -> None:
        super().__init__(text)
        self.chain_id = chain_id
        self.reason = reason


class ChainCancelled(ChainFailed):
    """The chain that was waited for was cancelled."""


class WaitTimeout(TowlineError, TimeoutError):
    """The chain did not end in the time one wanted to wait; it goes on."""


class UnsupportedConnection(TowlineError, TypeError):
    """`on=` was given something Towline cannot run a statement on, or of the wrong colour."""


class WrongIsolation(TowlineError):
    """The transaction of `on=` sees an old state of the database, and this needs the newest."""


class StoreError(TowlineError):
    """The database refused; `retry_safe` says whether repeating the call is harmless."""

    retry_safe = False


class StoreUnavailable(StoreError):
    """The database cannot be reached just now; nothing was stored, repeating is safe."""

    retry_safe = True


class WriterBusy(StoreUnavailable):
    """The writer was not free within lock_timeout; the text names who holds it."""


class DiskFull(StoreUnavailable):
    """No space for the database; work goes on by itself when there is."""


class CommitUnknown(StoreError):
    """The connection was lost during the commit: it may have happened or not."""


class ReadOnlyDatabase(StoreError):
    """The database cannot be written by this process."""


class DatabaseReplaced(StoreError):
    """The database file was deleted or replaced while it was open."""


class UnsafeFileSystem(StoreError):
    """SQLite's locks do not hold on this file system."""


class ForkedConnection(StoreError):
    """This process was forked while the file was in use: SQLite's locks do not hold in it."""


class SchemaMissing(StoreError):
    """The tables do not exist and may not, or cannot, be created now."""


class SchemaMismatch(StoreError):
    """The tables are older or newer than this release understands."""
