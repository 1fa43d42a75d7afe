"""An application with an open connection: the same words for both engines and both colours."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg.pq import TransactionStatus

from tests.conformance import hostile
from tests.conformance.place import Place
from tests.database import Database
from tests.kit import new
from towline import Towline
from towline.operation import Op
from towline.records import JobRecord, NewJob

if TYPE_CHECKING:
    from tests.conformance.kinds import Kind

T = TypeVar("T")


class Caller(ABC):
    """Whoever holds the connection and decides about its transaction."""

    def __init__(self, kind: Kind, app: Towline, database: Database) -> None:
        self.kind = kind
        self.app = app
        self.database = database
        self.called: set[str] = set()
        self._runner = asyncio.Runner() if kind.awaits else None
        self.raw: Any = self._finish(kind.open(database))
        self.start()

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @property
    @abstractmethod
    def begins_to_read(self) -> bool:
        """Whether the driver opens a transaction for a SELECT too; then so does reading of ours."""

    @abstractmethod
    def begin(self) -> None:
        """Open a transaction, unless there is one."""

    @abstractmethod
    def settings(self) -> tuple[object, ...]:
        """All that an application sets on its connection object."""

    @abstractmethod
    def session(self) -> list[Any]:
        """All that can be set for the connection in the database; reading it is a statement."""

    def start(self) -> None:
        """Do what an application of this kind has done before it calls us."""
        for text in self.kind.before:
            self.sql(text)

    def sql(self, text: str) -> Any:
        """Run a statement of the application; the cursor comes back."""
        return self._finish(self.raw.execute(text))

    def next(self, cursor: Any) -> Any:
        """The next row of the application's cursor, as it would be without factories."""
        return hostile.plain(self._finish(cursor.fetchone()))

    def commit(self) -> None:
        self._finish(self.raw.commit())

    def rollback(self) -> None:
        self._finish(self.raw.rollback())

    def close(self) -> None:
        self._finish(self.raw.close())
        if self._runner:
            self._runner.close()

    def run(self, op: Op[T], app: Towline | None = None) -> T:
        """Run an operation on this connection, blocking or awaiting as it must be."""
        app = app or self.app
        if self._runner:
            return self._runner.run(app.runner.arun(op, on=self.raw))
        return app.runner.run(op, on=self.raw)

    def call(self, name: str, *args: Any, of: object = None, **kwargs: Any) -> Any:
        """Call a method of the app, or of a handle, on this connection."""
        if of is None:
            self.called.add(name)
        twin = "await_" if name == "wait" else f"a{name}"  # a word of Python's own
        method = getattr(of or self.app, twin if self._runner else name)
        return self._finish(method(*args, **kwargs, on=self.raw))

    def enqueue(self, *jobs: NewJob) -> list[JobRecord]:
        return [record for record, _ in self.run(self.app.runner.store.enqueue(jobs or [new()]))]

    def wait(self, awaitable: Any) -> Any:
        async def waiting() -> Any:
            return await awaitable

        assert self._runner is not None
        return self._runner.run(waiting())

    def _finish(self, answer: Any) -> Any:
        return self.wait(answer) if inspect.isawaitable(answer) else answer


class SqliteCaller(Caller):
    """On sqlite3 or aiosqlite."""

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.in_transaction)

    @property
    def begins_to_read(self) -> bool:
        return False

    def begin(self) -> None:
        if not self.in_transaction:
            self.sql("BEGIN")

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def _end(self, word: str) -> None:
        """With autocommit=True the methods do nothing: who begins by SQL also ends by SQL."""
        if "autocommit=True" not in self.kind.name:
            self._finish(getattr(self.raw, word.lower())())
        elif self.in_transaction:
            self.sql(word)

    def close(self) -> None:
        super().close()
        hostile.restore_sqlite_types()

    def settings(self) -> tuple[object, ...]:
        driver: sqlite3.Connection = getattr(self.raw, "_conn", self.raw)

        def read() -> tuple[object, ...]:
            return (
                driver.isolation_level,
                driver.row_factory,
                driver.text_factory,
                getattr(driver, "autocommit", None),
            )

        settings: tuple[object, ...]
        settings = read() if driver is self.raw else self.wait(self.raw._execute(read))
        return settings

    def session(self) -> list[Any]:
        names = "busy_timeout", "foreign_keys", "query_only", "synchronous", "wal_autocheckpoint"
        return [self.next(self.sql(f"PRAGMA {name}")) for name in names]


class PsycopgCaller(Caller):
    """On psycopg, blocking or awaiting."""

    @property
    def in_transaction(self) -> bool:
        status = self.raw.info.transaction_status
        assert status in (TransactionStatus.IDLE, TransactionStatus.INTRANS), status
        return bool(status == TransactionStatus.INTRANS)

    @property
    def begins_to_read(self) -> bool:
        return self.kind.place is Place.OPENS_BY_ITSELF

    def begin(self) -> None:
        if not self.in_transaction:
            # Without autocommit the driver says BEGIN itself, before whatever comes.
            self.sql("BEGIN" if self.raw.autocommit else "SELECT 1")

    def settings(self) -> tuple[object, ...]:
        raw, adapters = self.raw, self.raw.adapters
        return (
            raw.autocommit,
            raw.isolation_level,
            raw.read_only,
            raw.deferrable,
            raw.prepare_threshold,
            raw.prepared_max,
            raw.row_factory,
            raw.cursor_factory,
            raw.server_cursor_factory,
            adapters,
            {format: dict(dumpers) for format, dumpers in adapters._dumpers.items()},
            [dict(dumpers) for dumpers in adapters._dumpers_by_oid],
            [dict(loaders) for loaders in adapters._loaders],
            list(adapters.types),
        )

    def session(self) -> list[Any]:
        cursor = self.sql("SELECT name, setting FROM pg_settings ORDER BY name")
        found: list[Any] = self._finish(cursor.fetchall())
        return found
