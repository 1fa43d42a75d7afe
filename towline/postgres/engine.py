"""The PostgreSQL engine: a pool of connections, transactions of our own, retries, the schema."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from ..connections import Connection, recognise_postgres
from ..connections.psycopg import PlainCursor, execute
from ..errors import InvalidSetting, StoreUnavailable, WriterBusy
from ..migrate import Migrations
from ..operation import Op, drive
from ..secret import masked
from ..sql import Queries
from ..store.base import as_json
from .fault import AGAIN, is_lost, translate
from .hold import ended_channel
from .store import PostgresStore
from .transaction import Transaction, is_stale

if TYPE_CHECKING:
    from ..wakes import Wake

T = TypeVar("T")
Raw = psycopg.Connection[Any]

PACKAGE = "towline.postgres"
TRIES = 20  # of an operation that met others: deadlock, serialization
LONGEST_CHANNEL = 57
MIGRATION_LOCK = 0.2  # seconds a migration may stand in the way of everybody else
MIGRATION_PATIENCE = 120.0
GUARD = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; "
    "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = {}"
)
BUILD = "SET statement_timeout = 0; SET lock_timeout = {}"
# Operations whose loss in a crash of the server is harmless. A claim is not one: its number would
# be given out again, and the fence would not hold.
LOSABLE = frozenset({"renew", "progress"})
ALIVE = {
    "connect_timeout": "10", "keepalives_idle": "15", "keepalives_interval": "5",
    "keepalives_count": "3", "tcp_user_timeout": "20000",
}  # fmt: skip


_inherited: list[object] = []  # pools of a parent process, kept from being closed in the child


class PostgresEngine:
    """One database, for this process."""

    name = "postgres"

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        schema: str,
        lock_timeout: float,
        durable: bool,
        notify: bool,
        connections: int,
        pooler: bool,
        listen: str | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        try:
            given: dict[str, Any] = conninfo_to_dict(url)
        except psycopg.Error as error:
            # What libpq quotes may be a part of the password.
            problem = str(error).partition(': "')[0]
            raise InvalidSetting(
                f"{masked(url)!r}: {problem}; a URL is postgresql://user@host/database, and what "
                "has a meaning there is written %40 for @, %25 for %, %2F for /"
            ) from None
        self._conninfo = make_conninfo(**{"application_name": "towline", **ALIVE, **given})
        self.place = f"database {given.get('dbname') or given.get('user') or ''}".strip()
        self.prefix = prefix
        self.schema = schema
        self.lock_timeout = lock_timeout
        self.channel = _channel(f"{schema}.{prefix}wake")
        self.sql = Queries(PACKAGE, prefix, schema)
        self.store = PostgresStore(self.sql, self.channel if notify else None, clock)
        self.migrations = Migrations(PACKAGE, prefix, schema)
        self._losable = LOSABLE if durable else LOSABLE | {"enqueue"}
        self._connections = connections
        self._hears = notify and (listen is not None or not pooler)  # a pooler lets nothing through
        self._notifies = notify
        self._listen = listen
        self._settings: dict[str, Any] = {"autocommit": True}
        if pooler:
            self._settings["prepare_threshold"] = None
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._pool: ConnectionPool[Raw] | None = None
        self._unsent: set[str] = set()
        self._sending = False

    # ---- running operations

    def run(self, op: Op[T], patience: float | None = None) -> T:
        """Run an operation on a connection of ours, in a transaction of its own.

        Deadlocks and serialization failures are run again; so is what lost its connection before
        its commit was sent, as long as lock_timeout.
        """
        op.accept()
        return self._run(op, min(self.lock_timeout, patience or self.lock_timeout))

    async def arun(self, op: Op[T]) -> T:
        """The same without blocking the event loop: one hop to a thread for the whole operation."""
        return await asyncio.to_thread(self.run, op)

    @contextmanager
    def transaction(self) -> Iterator[Raw]:
        """A transaction on one of our connections, for the application to write in."""
        pool = self._opened()
        raw = pool.getconn()
        try:
            with PlainCursor(raw) as cursor:
                cursor.execute(b"BEGIN")
                transaction = Transaction(self.sql, cursor)
                try:
                    yield raw
                except BaseException:
                    transaction.undo()
                    raise
                transaction.commit("the transaction")
        finally:
            pool.putconn(raw)

    def tell_ended(self) -> None:
        """Say it on the channel of those who wait, after the commit."""
        if not self._notifies:
            return
        statement = self.sql.notify_alone(channel=ended_channel(self.channel), queues=as_json([""]))
        try:
            pool = self._opened()
            with pool.connection() as raw, PlainCursor(raw) as cursor:
                execute(cursor, statement, None)
        except (psycopg.Error, PoolTimeout):  # a hint: whoever waits looks by itself
            pass

    def ends(self) -> Wake | None:
        if not self._hears:
            return None
        from .listen import PostgresListen

        return PostgresListen(self, self._listen, ends=True)

    def wakes(self) -> list[Wake]:
        if not self._hears:
            return []
        from .listen import PostgresListen

        return [PostgresListen(self, self._listen)]

    def recognise(self, raw: object) -> Connection:
        """Wrap a caller's connection."""
        return recognise_postgres(raw, self.sql)

    def _run(self, op: Op[T], lock_timeout: float) -> T:
        deadline = time.monotonic() + max(self.lock_timeout, 1.0)
        tries = 0
        while True:
            try:
                return self._attempt(op, lock_timeout)
            except AGAIN as error:
                tries += 1
                if tries == TRIES:
                    raise translate(error, op.name, self.place) from error
                time.sleep(random.uniform(0, 0.002 * 2 ** min(tries, 6)))
            except PoolTimeout as error:
                raise self._unreachable() from error
            except psycopg.Error as error:
                if not is_lost(error) or time.monotonic() > deadline:
                    raise translate(error, op.name, self.place) from error
                time.sleep(random.uniform(0.01, 0.1))

    def _attempt(self, op: Op[T], lock_timeout: float) -> T:
        losable = op.name in self._losable
        single = op.single and not losable
        pool = self._opened()
        raw = pool.getconn()
        try:
            while single and is_stale(raw):
                raw.close()
                pool.putconn(raw)
                raw = pool.getconn()
            with PlainCursor(raw) as cursor:
                transaction = Transaction(self.sql, cursor)
                if single:
                    result = transaction.alone(op)
                else:
                    transaction.begin(op, lock_timeout, losable=losable)
                    try:
                        result = drive(op, transaction.execute)
                    except BaseException:
                        transaction.undo()
                        raise
                    transaction.commit(op.name, reads=op.reads)
                if transaction.woken:
                    self._send(cursor, transaction.woken)
            return result
        finally:
            pool.putconn(raw)

    def _send(self, cursor: PlainCursor, queues: set[str]) -> None:
        """Tell who listens, after the commit. While one is sending, the others leave it to him."""
        with self._mutex:
            self._unsent |= queues
            if self._sending:
                return
            self._sending = True
        try:
            while True:
                with self._mutex:
                    if not self._unsent:
                        self._sending = False
                        return
                    queues, self._unsent = self._unsent, set()
                statement = self.sql.notify_alone(
                    channel=self.channel, queues=as_json(sorted(queues))
                )
                execute(cursor, statement, None)
        except BaseException as error:
            with self._mutex:
                self._sending = False
            if not isinstance(error, psycopg.Error):  # a hint: whoever misses it looks by itself
                raise

    # ---- connections

    def _opened(self) -> ConnectionPool[Raw]:
        """This process's pool. One that was inherited by fork is left alone, never closed here."""
        if os.getpid() != self._pid:
            _inherited.append(self._pool)
            self._pid, self._pool, self._mutex = os.getpid(), None, threading.Lock()
            self._sending = False
        with self._mutex:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self._conninfo, min_size=0, max_size=self._connections, open=True,
                    timeout=max(self.lock_timeout, 1.0), max_idle=300, name="towline",
                    kwargs=self._settings,
                )  # fmt: skip
            return self._pool

    def prepare(self) -> None:
        """See that the server answers; the pool alone would not say why it does not."""
        try:
            psycopg.connect(self._conninfo, autocommit=True).close()
        except psycopg.Error as error:
            raise translate(error, "connect", self.place) from error

    def _unreachable(self) -> StoreUnavailable:
        try:
            self.prepare()
        except StoreUnavailable as error:
            return error
        return StoreUnavailable(
            f"all {self._connections} connections to {self.place} were in use for "
            f"{max(self.lock_timeout, 1.0):g} s; raise connections="
        )

    def close(self) -> None:
        """Close every connection of this process. The engine opens them again when used."""
        if os.getpid() != self._pid:
            return
        with self._mutex:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    # ---- schema

    def migrate(self) -> list[str]:
        """Create the tables or bring them up to date, without standing in anybody's way for long:
        a short lock_timeout, and again."""
        done: list[str] = []
        deadline = time.monotonic() + MIGRATION_PATIENCE
        while True:
            try:
                applied, concurrent = self._run(self.migrations.migrate(self.store), MIGRATION_LOCK)
                done += applied
                if concurrent is None:
                    return done
                done += self._build(concurrent)
            except WriterBusy:
                if time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.05, 0.5))

    def _build(self, name: str) -> list[str]:
        """Run a migration that cannot be in a transaction: indexes built beside the traffic.

        A second connection keeps others out meanwhile. Whatever the role's settings are, it holds
        no snapshot, which the build would wait for, and is not ended for being idle. The build
        stands in nobody's way while it waits for transactions that are older, so it may for long.
        """
        try:
            with (
                closing(psycopg.connect(self._conninfo, autocommit=True)) as guard,
                closing(psycopg.connect(self._conninfo, autocommit=True)) as raw,
                PlainCursor(guard) as guarding,
                PlainCursor(raw) as cursor,
            ):
                guarding.execute(GUARD.format(round(MIGRATION_LOCK * 1000)).encode())
                execute(guarding, self.migrations.hold(self.sql), False)
                guarding.execute(b"SELECT 1")  # a statement with parameters keeps its snapshot
                cursor.execute(BUILD.format(round(MIGRATION_PATIENCE * 1000)).encode())
                return drive(
                    self.migrations.build(self.store, name),
                    lambda statement: execute(cursor, statement, False),
                )
        except AGAIN as error:  # the server still builds for one who was killed
            raise WriterBusy(f"migration {name} met another build: {error}") from error
        except psycopg.Error as error:
            raise translate(error, f"migration {name}", self.place) from error

    def check_schema(self) -> None:
        self.run(self.migrations.check(self.sql))

    def vacuum(self, pages: int) -> int:
        """Vacuum our tables; how many pages that freed is not known here, so 0."""
        try:
            with closing(psycopg.connect(self._conninfo, autocommit=True)) as raw:
                raw.execute("SET statement_timeout = 0")
                for statement in self.migrations.vacuum():
                    raw.execute(statement.query.format.encode())
        except psycopg.Error as error:
            raise translate(error, "vacuum", self.place) from error
        return 0

    def shrink(self) -> None:
        """Nothing: autovacuum does it, by the settings of our tables, and nobody waits for it."""


def _channel(name: str) -> str:
    """A name for NOTIFY, which takes 63 bytes; room is left for `_ended`."""
    if len(name) <= LONGEST_CHANNEL:
        return name
    return f"{name[:40]}_{hashlib.sha256(name.encode()).hexdigest()[:12]}"
