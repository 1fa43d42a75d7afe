"""The PostgreSQL engine: connections, transactions of our own, retries, the schema."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import psycopg

from ..connections import POSTGRES, Connection, recognise
from ..connections.postgres import MET_ANOTHER, sqlstate
from ..connections.psycopg import PlainCursor, execute
from ..engine import EngineSettings, Finding, wake_channel
from ..errors import InvalidValue, StoreUnavailable, TowlineError, WriterBusy
from ..migrate import Migrations
from ..operation import Loss, Op, drive
from ..sql import Queries
from ..store.ground import as_json
from .address import Address
from .alone import Alone
from .checks import describe, examine
from .errors import AGAIN, is_lost, translate
from .listen import PostgresListen
from .own_connection import OwnConnection, connect
from .pool import AllInUse, Pool
from .store import PostgresStore, ended_channel
from .transaction import Transaction

if TYPE_CHECKING:
    from ..wakes import Wake

T = TypeVar("T")

PACKAGE = "towline.postgres"
TRIES = 20  # of an operation that met others: deadlock, serialization
LONGEST_CHANNEL = 57
MIGRATION_LOCK = 0.2  # seconds a migration may stand in the way of others
MIGRATION_PATIENCE = 120.0
GUARD = (
    "BEGIN ISOLATION LEVEL READ COMMITTED; "
    "SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL lock_timeout = {}"
)
BUILD = "SET statement_timeout = 0; SET lock_timeout = {}"
# Seconds without a sign of life, on top of what a statement may wait for locks: then the server is
# frozen, or the network is, and the connection is given up. A worker's must not wait as long.
SILENCE = 10.0
# Seconds our transactions may stand still between two statements: a frozen process must not keep
# the rows that it holds, or its jobs could not be taken over. A worker's are shorter than a lease.
STANDSTILL, STANDSTILL_OF_WORKER = 10.0, 2.0
SENDING = 2.0  # seconds after which the thread that sends hints is taken for gone


class PostgresEngine:
    """One database, for this process."""

    name = "postgres"
    has_one_writer = False

    def __init__(self, settings: EngineSettings) -> None:
        server, prefix, schema = settings.server, settings.prefix, settings.server.schema
        self.address = Address(settings.url)
        self.place = self.address.place
        self.lock_timeout = settings.lock_timeout
        self.channel = _channel(f"{schema}.{prefix}wake")
        self.wake_channel = wake_channel(settings.url, f"{schema}.{prefix}")
        self.sql = Queries(PACKAGE, prefix, schema)
        self._hints = self.channel if server.notify else None  # where they go
        self.store = PostgresStore(self.sql, self._hints, settings.clock)
        self.migrations = Migrations(PACKAGE, prefix, schema)
        # With synchronous_commit off. Workers outlive a crash of the server, so never a claim.
        self._losable = (Loss.ANY_TIME,) if settings.durable else (Loss.ANY_TIME, Loss.IF_ALLOWED)
        self._server = server
        # A pooler lets nothing through.
        self._hears = server.notify and (server.listen is not None or not server.pooler)
        self._bound = max(self.lock_timeout, 5.0) + SILENCE
        self._lending = max(self.lock_timeout, 1.0)  # seconds for a connection to become free
        self.listeners: set[PostgresListen] = set()  # started in this process
        self._unsent: deque[str] = deque()
        self._sending_until = 0.0
        self._begin_life()

    # ---- running operations

    def run(self, op: Op[T], patience: float | None = None) -> T:
        """Deadlocks and serialization failures are run again; so is what lost its connection before
        its commit was sent, as long as lock_timeout. With `patience`, as a worker's pump has, the
        thread has a connection of its own and waits for no user of the others."""
        if patience is None:
            return self._run(op, self._pool_here(), self.lock_timeout, self._bound)
        patience = min(self.lock_timeout, patience)
        return self._run(op, self._own_pool(patience), patience, SILENCE)

    @contextmanager
    def transaction(self) -> Iterator[OwnConnection]:
        """A transaction on one of our connections, for the application to write in.

        Raises StoreUnavailable when it cannot begin; what goes wrong inside is psycopg's error.
        """
        pool = self._pool_here()
        with ExitStack() as lent:
            begin = partial(self._begin, pool, lent)
            transaction = self._persist("ctx.transaction()", begin, pool, self.lock_timeout)
            raw = transaction.raw
            raw.bound = None  # the application's statements take as long as they take
            try:
                yield raw
            except BaseException:
                raw.bound = self._bound
                transaction.undo()
                raise
            raw.bound = self._bound
            try:
                transaction.commit("the transaction")
            except psycopg.OperationalError as error:  # not what a constraint of theirs says
                raise translate(error, "the transaction", self.place) from error

    def _begin(self, pool: Pool, lent: ExitStack) -> Transaction:
        lent.close()  # what was lent for the last try
        raw = lent.enter_context(pool.lent(self._lending))
        raw.bound = self._bound
        transaction = Transaction(self.sql, raw, PlainCursor(raw))
        transaction.begin_for_application()
        return transaction

    def met_another(self, error: BaseException) -> bool:
        """By the error's code, whichever driver raised it; SQLAlchemy keeps that in `orig`."""
        orig = getattr(error, "orig", None)
        return sqlstate(error) in MET_ANOTHER or (
            isinstance(orig, BaseException) and self.met_another(orig)
        )

    def tell_ended(self) -> None:
        """Notify callers of `result()`: on the connection of a worker that listens here, if there
        is one."""
        if not self._server.notify:
            return
        for listener in list(self.listeners):
            if listener.tell_ended():
                return
        statement = self.sql.notify_alone(channel=ended_channel(self.channel), queues=as_json([""]))
        try:
            with self._pool_here().lent(SILENCE) as raw, PlainCursor(raw) as cursor:
                raw.bound = SILENCE
                execute(cursor, statement, False)
        except (psycopg.Error, AllInUse):  # a hint: callers of `result()` look by themselves
            pass

    def end_wake(self) -> Wake | None:
        return PostgresListen(self, self._server.listen, ends=True) if self._hears else None

    def wakes(self) -> list[Wake]:
        return [PostgresListen(self, self._server.listen)] if self._hears else []

    def recognise(self, raw: object) -> Connection:
        """Wrap a caller's connection; a pooler may know the database by another name."""
        return recognise(raw, POSTGRES, None if self._server.pooler else self.address.database)

    def _run(self, op: Op[T], pool: Pool, lock_timeout: float, bound: float | None) -> T:
        attempt = partial(self._attempt, op, pool, _milliseconds(lock_timeout), bound)
        return self._persist(op.name, attempt, pool, max(lock_timeout, 1.0))

    def _persist(self, name: str, attempt: Callable[[], T], pool: Pool, seconds: float) -> T:
        """Call it again when it met another transaction, and for so many seconds when it lost its
        connection before it could be stored."""
        deadline = time.monotonic() + seconds
        tries = 0
        while True:
            try:
                return attempt()
            except AGAIN as error:
                tries += 1
                if tries == TRIES:
                    raise translate(error, name, self.place) from error
                time.sleep(random.uniform(0, 0.002 * 2 ** min(tries, 6)))
            except AllInUse:
                raise StoreUnavailable(
                    f"all {self._server.connections} connections to {self.place} were in use for "
                    f"{self._lending:g} s; raise connections="
                ) from None
            except psycopg.Error as error:
                if not is_lost(error) or time.monotonic() > deadline:
                    raise translate(error, name, self.place) from error
                pool.drop_stale()
                tries += 1
                time.sleep(random.uniform(0.01, 0.02 * 2 ** min(tries, 4)))
            except UnicodeEncodeError as error:
                raise InvalidValue(
                    f"{name} has text that is not Unicode, so it cannot be stored: {error.reason}"
                ) from None

    def _attempt(self, op: Op[T], pool: Pool, lock_timeout: str, bound: float | None) -> T:
        losable = op.loss in self._losable
        held: list[OwnConnection] = []
        sound = False
        try:
            try:
                raw = pool.lend(held, self._lending)
                single = op.single and not losable and not raw.pooled
                while single and raw.stale:
                    pool.take_back(held, sound=False)
                    raw = pool.lend(held, self._lending)
                raw.bound = bound
                with PlainCursor(raw) as cursor:
                    if single:
                        transaction: Transaction
                        transaction = alone = Alone(self.sql, raw, cursor, self._hints)
                        result = alone.run(op)
                    else:
                        transaction = Transaction(self.sql, raw, cursor)
                        transaction.begin(op, lock_timeout, losable=losable)
                        try:
                            result = drive(op, transaction.execute)
                        except BaseException:
                            transaction.undo()
                            raise
                        transaction.commit(op.name, reads=op.reads)
                    if transaction.woken:
                        self._send(cursor, transaction.woken)
                sound = True
            except (psycopg.Error, TowlineError):
                sound = True  # it failed in order
                raise
            finally:
                pool.take_back(held, sound=sound)
        except BaseException:
            pool.take_back(held, sound=False)
            raise
        return result

    def _send(self, cursor: PlainCursor, queues: set[str]) -> None:
        """Notify workers that listen, after the commit; one thread sends for all that come
        meanwhile."""
        self._unsent.extend(queues)
        while self._unsent and time.monotonic() >= self._sending_until:
            self._sending_until = time.monotonic() + SENDING
            try:
                told: set[str] = set()
                while self._unsent:
                    told.add(self._unsent.popleft())
                statement = self.sql.notify_alone(
                    channel=self.channel, queues=as_json(sorted(told))
                )
                execute(cursor, statement, None)
            except (psycopg.Error, IndexError):  # a hint: a worker that misses it looks by itself
                pass
            finally:
                self._sending_until = 0.0

    # ---- connections

    def _begin_life(self) -> None:
        """In this process nothing is open yet."""
        self._pid = os.getpid()
        open_one = partial(self._connect, self.lock_timeout, STANDSTILL)
        self._pool = Pool(open_one, self._server.connections)
        self._own: dict[int, Pool] = {}  # of threads that have one to themselves

    def _pool_here(self) -> Pool:
        """The pool of this process. What was inherited by fork is left alone, never closed here."""
        if os.getpid() != self._pid:
            for pool in (self._pool, *self._own.values()):
                pool.leave()
            self._begin_life()
        return self._pool

    def _own_pool(self, patience: float) -> Pool:
        """The one connection of this thread."""
        self._pool_here()
        thread = threading.get_ident()
        pool = self._own.get(thread)
        if pool is None:
            alive = {each.ident for each in threading.enumerate()}
            for gone in [ident for ident in list(self._own) if ident not in alive]:
                self._own.pop(gone).close()
            open_one = partial(self._connect, patience, STANDSTILL_OF_WORKER)
            pool = self._own.setdefault(thread, Pool(open_one, 1))
        return pool

    def _connect(self, lock_timeout: float, standstill: float) -> OwnConnection:
        settings = {
            "lock_timeout": _milliseconds(lock_timeout),
            "idle_in_transaction_session_timeout": _milliseconds(standstill),
        }
        return connect(
            self.address.conninfo, self.place, settings, bound=SILENCE, pooler=self._server.pooler
        )

    def exists(self) -> bool:
        """Always: a server answers for what it does not have."""
        return True

    def prepare(self) -> None:
        """See that the server answers, and that it can hold what we store."""
        try:
            with self._pool_here().lent(self._lending):
                pass
        except AllInUse:  # so it answers
            pass
        except psycopg.Error as error:
            raise translate(error, "connect", self.place) from error

    def close(self) -> None:
        """Close every idle connection of this process, the others when they are given back; using
        the engine opens new ones."""
        if os.getpid() != self._pid:
            return
        pools = [self._pool, *self._own.values()]
        self._begin_life()
        for pool in pools:
            pool.close()

    # ---- schema

    def migrate(self) -> list[str]:
        """Create the tables or bring them up to date: with a short lock_timeout, and again, so that
        no other transaction waits for long."""
        done: list[str] = []
        deadline = time.monotonic() + MIGRATION_PATIENCE
        while True:
            try:
                op = Op("migrate", self.migrations.migrate, self.store)
                applied, concurrent = self._run(op, self._pool_here(), MIGRATION_LOCK, None)
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
                closing(psycopg.connect(self.address.conninfo, autocommit=True)) as guard,
                closing(psycopg.connect(self.address.conninfo, autocommit=True)) as raw,
                PlainCursor(guard) as guarding,
                PlainCursor(raw) as cursor,
            ):
                guarding.execute(GUARD.format(round(MIGRATION_LOCK * 1000)).encode())
                execute(guarding, self.migrations.hold(self.sql), False)
                guarding.execute(b"SELECT 1")  # a statement with parameters keeps its snapshot
                cursor.execute(BUILD.format(round(MIGRATION_PATIENCE * 1000)).encode())
                build = Op("build", self.migrations.build, self.store, name)
                return drive(build, partial(execute, cursor, prepare=False))
        except AGAIN as error:  # the server still builds for one who was killed
            raise WriterBusy(f"migration {name} met another build: {error}") from error
        except psycopg.Error as error:
            raise translate(error, f"migration {name}", self.place) from error

    def check_schema(self) -> None:
        self.run(Op("check_schema", self.migrations.check, self.sql, reads=True))

    def checks(self) -> Iterator[Finding]:
        return examine(*self.run(describe(self.store)))

    def vacuum(self, pages: int) -> int:
        """Vacuum our tables; how many pages that freed is not known here, so 0."""
        try:
            with closing(psycopg.connect(self.address.conninfo, autocommit=True)) as raw:
                raw.execute("SET statement_timeout = 0")
                for statement in self.migrations.vacuum():
                    raw.execute(statement.encode())
        except psycopg.Error as error:
            raise translate(error, "vacuum", self.place) from error
        return 0

    def after_prune(self) -> None:
        """Close what has been idle for long; autovacuum does the rest."""
        self._pool_here().trim()


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


def _channel(name: str) -> str:
    """A name for NOTIFY, which takes 63 bytes; room is left for `_ended`."""
    if len(name) <= LONGEST_CHANNEL:
        return name
    return f"{name[:40]}_{hashlib.sha256(name.encode()).hexdigest()[:12]}"
