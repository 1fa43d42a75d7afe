"""The PostgreSQL engine: connections, transactions of our own, retries, the schema."""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import psycopg

from ..connections import Connection, recognise_postgres
from ..connections.postgres import MET_ANOTHER, sqlstate
from ..connections.psycopg import PlainCursor, execute
from ..engine import EngineSettings, Finding, wake_channel
from ..errors import InvalidValue, StoreUnavailable, TowlineError, WriterBusy
from ..migrate import Migrations
from ..operation import Loss, Op, drive
from ..sql import Queries
from ..store.ground import as_json
from .address import Address
from .checks import describe, examine
from .errors import AGAIN, is_lost, translate
from .pool import AllInUse, Pool
from .store import PostgresStore, ended_channel
from .transaction import Transaction
from .wire import Wire, connect

if TYPE_CHECKING:
    from ..wakes import Wake
    from .listen import PostgresListen

T = TypeVar("T")

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
# Seconds without a sign of life, on top of what a statement may wait for locks: then the server is
# frozen, or the network is, and the connection is given up. A worker's must not wait as long.
SILENCE = 10.0
# Seconds our transactions may stand still between two statements: a frozen process must not keep
# the rows that it holds, or nobody could take its jobs over. A worker's are shorter than a lease.
STANDSTILL, STANDSTILL_OF_WORKER = 10.0, 2.0
SENDING = 2.0  # seconds after which who sends hints is taken for gone


class PostgresEngine:
    """One database, for this process."""

    name = "postgres"

    def __init__(self, settings: EngineSettings) -> None:
        server, prefix, schema = settings.server, settings.prefix, settings.server.schema
        self.address = Address(settings.url)
        self.place = self.address.place
        self.prefix = prefix
        self.schema = schema
        self.lock_timeout = settings.lock_timeout
        self.channel = _channel(f"{schema}.{prefix}wake")
        self.wake_channel = wake_channel(settings.url, f"{schema}.{prefix}")
        self.sql = Queries(PACKAGE, prefix, schema)
        self.store = PostgresStore(
            self.sql, self.channel if server.notify else None, settings.clock
        )
        self.migrations = Migrations(PACKAGE, prefix, schema)
        # With synchronous_commit off. Workers outlive a crash of the server, so never a claim.
        self._losable = (Loss.ANY_TIME,) if settings.durable else (Loss.ANY_TIME, Loss.IF_ALLOWED)
        self._connections = server.connections
        # A pooler lets nothing through.
        self._hears = server.notify and (server.listen is not None or not server.pooler)
        self._notifies = server.notify
        self._listen = server.listen
        self._pooler = server.pooler
        self._bound = max(settings.lock_timeout, 5.0) + SILENCE
        self.listeners: set[PostgresListen] = set()  # started in this process
        self._unsent: deque[str] = deque()
        self._sending_until = 0.0
        self._begin_life()

    # ---- running operations

    def run(self, op: Op[T], patience: float | None = None) -> T:
        """Run an operation on a connection of ours, in a transaction of its own.

        Deadlocks and serialization failures are run again; so is what lost its connection before
        its commit was sent, as long as lock_timeout. Who has little patience, a worker's pump, has
        a connection of its own, so that it waits for nobody who holds others.
        """
        if patience is None:
            return self._run(op, self._pool_here(), self.lock_timeout, self._bound)
        patience = min(self.lock_timeout, patience)
        return self._run(op, self._own_pool(patience), patience, SILENCE)

    @contextmanager
    def transaction(self) -> Iterator[Wire]:
        """A transaction on one of our connections, for the application to write in.

        Raises StoreUnavailable when it cannot begin; what goes wrong inside is psycopg's error.
        """
        pool = self._pool_here()
        held: list[Wire] = []
        sound = False
        try:
            try:
                transaction = self._persist(
                    "ctx.transaction()", partial(self._begin, pool, held), pool, self.lock_timeout
                )
                raw = held[-1]
                raw.bound = None  # the application's statements take as long as they take
                try:
                    yield raw
                except BaseException:
                    raw.bound = self._bound
                    transaction.undo()
                    raise
                raw.bound = self._bound
                self._commit(transaction)
                sound = True
            except Exception:
                sound = True
                raise
            finally:
                pool.take_back(held, sound=sound)
        except BaseException:
            pool.take_back(held, sound=False)
            raise

    def _begin(self, pool: Pool, held: list[Wire]) -> Transaction:
        try:
            raw = pool.lend(held, max(self.lock_timeout, 1.0))
            raw.bound = self._bound
            transaction = Transaction(self.sql, raw, PlainCursor(raw))
            transaction.begin_for_application()
        except BaseException:
            pool.take_back(held, sound=False)
            raise
        return transaction

    def _commit(self, transaction: Transaction) -> None:
        try:
            transaction.commit("the transaction")
        except psycopg.OperationalError as error:  # not what a constraint of theirs says
            raise translate(error, "the transaction", self.place) from error

    def met_another(self, error: BaseException) -> bool:
        """By the error's code, whichever driver raised it; SQLAlchemy keeps that in `orig`."""
        orig = getattr(error, "orig", None)
        return sqlstate(error) in MET_ANOTHER or (
            isinstance(orig, BaseException) and self.met_another(orig)
        )

    def tell_ended(self) -> None:
        """Say it on the channel of those who wait, after the commit: on the connection of a worker
        that listens here, if there is one."""
        if not self._notifies:
            return
        for listener in list(self.listeners):
            if listener.tell_ended():
                return
        statement = self.sql.notify_alone(channel=ended_channel(self.channel), queues=as_json([""]))
        pool = self._pool_here()
        held: list[Wire] = []
        try:
            raw = pool.lend(held, SILENCE)
            raw.bound = SILENCE
            with PlainCursor(raw) as cursor:
                execute(cursor, statement, None)
        except (psycopg.Error, AllInUse):  # a hint: whoever waits looks by himself
            pass
        except BaseException:
            pool.take_back(held, sound=False)
            raise
        finally:
            pool.take_back(held, sound=True)

    def end_wake(self) -> Wake | None:
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
        return recognise_postgres(raw, self.sql, None if self._pooler else self.address.database)

    def _run(self, op: Op[T], pool: Pool, lock_timeout: float, bound: float | None) -> T:
        attempt = partial(self._attempt, op, pool, _milliseconds(lock_timeout), bound)
        return self._persist(op.name, attempt, pool, max(lock_timeout, 1.0))

    def _persist(self, name: str, attempt: Callable[[], T], pool: Pool, seconds: float) -> T:
        """Do it again when it met others, and as long as so many seconds when it lost its
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
                    f"all {self._connections} connections to {self.place} were in use for "
                    f"{max(self.lock_timeout, 1.0):g} s; raise connections="
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
        held: list[Wire] = []
        sound = False
        try:
            try:
                raw = pool.lend(held, max(self.lock_timeout, 1.0))
                single = op.single and not losable and not raw.pooled
                while single and raw.stale:
                    pool.take_back(held, sound=False)
                    raw = pool.lend(held, max(self.lock_timeout, 1.0))
                raw.bound = bound
                with PlainCursor(raw) as cursor:
                    transaction = Transaction(self.sql, raw, cursor)
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
        """Tell who listens, after the commit. While one is sending, the others leave it to him."""
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
            except (psycopg.Error, IndexError):  # a hint: whoever misses it looks by himself
                pass
            finally:
                self._sending_until = 0.0

    # ---- connections

    def _begin_life(self) -> None:
        """In this process nothing is open yet."""
        self._pid = os.getpid()
        open_one = partial(self._connect, self.lock_timeout, STANDSTILL)
        self._pool = Pool(open_one, self._connections)
        self._own: dict[int, Pool] = {}  # of threads that have one to themselves

    def _check_process(self) -> None:
        """What was inherited by fork is left alone, never closed here."""
        if os.getpid() != self._pid:
            for pool in (self._pool, *self._own.values()):
                pool.leave()
            self._begin_life()

    def _pool_here(self) -> Pool:
        self._check_process()
        return self._pool

    def _own_pool(self, patience: float) -> Pool:
        """The one connection of this thread."""
        self._check_process()
        thread = threading.get_ident()
        pool = self._own.get(thread)
        if pool is None:
            alive = {each.ident for each in threading.enumerate()}
            for gone in [ident for ident in list(self._own) if ident not in alive]:
                self._own.pop(gone).close()
            open_one = partial(self._connect, patience, STANDSTILL_OF_WORKER)
            pool = self._own.setdefault(thread, Pool(open_one, 1))
        return pool

    def _connect(self, lock_timeout: float, standstill: float) -> Wire:
        settings = {
            "lock_timeout": _milliseconds(lock_timeout),
            "idle_in_transaction_session_timeout": _milliseconds(standstill),
        }
        return connect(
            self.address.conninfo, self.place, settings, bound=SILENCE, pooler=self._pooler
        )

    def exists(self) -> bool:
        """Always: a server answers for what it does not have."""
        return True

    def prepare(self) -> None:
        """See that the server answers, and that it can hold what we store."""
        pool = self._pool_here()
        held: list[Wire] = []
        try:
            pool.lend(held, max(self.lock_timeout, 1.0))
        except AllInUse:  # so it answers
            pass
        except psycopg.Error as error:
            raise translate(error, "connect", self.place) from error
        finally:
            pool.take_back(held, sound=True)

    def close(self) -> None:
        """Close every connection of this process that is idle, the others when they are given
        back. The engine opens them again when used."""
        if os.getpid() != self._pid:
            return
        pools = [self._pool, *self._own.values()]
        self._begin_life()
        for pool in pools:
            pool.close()

    # ---- schema

    def migrate(self) -> list[str]:
        """Create the tables or bring them up to date, without standing in anybody's way for long:
        a short lock_timeout, and again."""
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
                return drive(
                    Op("build", self.migrations.build, self.store, name),
                    lambda statement: execute(cursor, statement, False),
                )
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
        """Close what has been idle for long. Autovacuum does the rest, by the settings of our
        tables."""
        self._pool_here().trim()


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))


def _channel(name: str) -> str:
    """A name for NOTIFY, which takes 63 bytes; room is left for `_ended`."""
    if len(name) <= LONGEST_CHANNEL:
        return name
    return f"{name[:40]}_{hashlib.sha256(name.encode()).hexdigest()[:12]}"
