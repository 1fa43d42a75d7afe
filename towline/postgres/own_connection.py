"""A connection of ours: set up once, and never waited for without a limit.

psycopg waits as long as TCP says that the peer is alive. A frozen machine, a paused pooler or a
lost synchronous standby acknowledges packets and never answers; so we wait for a sign of life no
longer than `bound`, and close the connection then.

Our settings are set for the session where the session is ours. A pooler may give it to somebody
else after each transaction: there they are set for the transaction, and nothing is prepared.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from ..connections.psycopg import PlainCursor
from ..errors import InvalidSetting

if TYPE_CHECKING:
    from psycopg.abc import PQGen

T = TypeVar("T")

# Plans must not rest on how full the tables were when a statement was prepared, or on guesses
# before the first ANALYZE: a bitmap of the whole backlog, sorted, for the few rows that an index
# would give in order. And a statement of a few rows gains nothing from being compiled.
SESSION = {
    "statement_timeout": "0", "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off",
}  # fmt: skip
# Of psycopg's and poll's words for being ready.
READ, WRITE = 1, 2
EVENTS = {READ: select.POLLIN, WRITE: select.POLLOUT, READ | WRITE: select.POLLIN | select.POLLOUT}


class SilentServer(psycopg.OperationalError):
    """The server takes what is sent and does not answer."""


class OwnConnection(psycopg.Connection[Any]):
    """One connection to the database, for whoever has it from the pool."""

    bound: float | None = None  # seconds without a sign of life; None is for ever
    pooled = False  # whether a pooler stands between
    settings: dict[str, str]  # what our transactions have set
    since = 0.0  # when it was last given back
    meanwhile: Callable[[], None] | None = None  # done once, when the next statement has been sent
    prepared: set[bytes]  # statements that `alone` has prepared; psycopg prepares its own

    def wait(self, gen: PQGen[T], interval: float = 0.0, timeout: float | None = None) -> T:
        """Run a generator of psycopg to its end; what leaves it half done leaves no connection."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            wanted = next(gen)
            poll = select.poll()
            descriptor = self.pgconn.socket
            poll.register(descriptor, EVENTS[wanted])
            if self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                meanwhile()
            limit = None if self.bound is None else self.bound * 1000
            while True:
                found = poll.poll(limit)
                if not found:
                    self.close()
                    raise SilentServer(f"no answer for {self.bound:g} s")
                event = found[0][1]
                ready = READ if event & ~select.POLLOUT else 0
                if event & ~select.POLLIN:
                    ready |= WRITE
                now = gen.send(ready)
                if now != wanted:
                    wanted = now
                    poll.modify(descriptor, EVENTS[wanted])
        except StopIteration as stop:
            result: T = stop.value
            return result
        except psycopg.Error:
            raise
        except BaseException:  # the answer to what was sent would be taken for the next one's
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.close()
            raise

    def __del__(self, _warn: Any = None, /) -> None:
        """Nothing to warn of: one that an interrupt took from its user is closed by being gone."""

    @property
    def usable(self) -> bool:
        """Whether the next one can have it: idle, and whoever had it is out of it."""
        pgconn = self.pgconn
        return (
            pgconn.transaction_status == TransactionStatus.IDLE
            and pgconn.pipeline_status == PipelineStatus.OFF
            and not self.lock.locked()
        )

    @property
    def stale(self) -> bool:
        """Whether, idle, it has something to say: its server said good-bye."""
        try:
            poll = select.poll()
            poll.register(self.fileno(), select.POLLIN)
            return bool(poll.poll(0))
        except (OSError, ValueError, psycopg.Error):
            return True


def connect(
    conninfo: str, place: str, settings: dict[str, str], *, bound: float, pooler: bool
) -> OwnConnection:
    """Open a connection with these settings besides those all of ours have."""
    raw = OwnConnection.connect(conninfo, autocommit=True)
    try:
        raw.bound, raw.prepared = bound, set()
        raw.settings = {**SESSION, **settings}
        encoding = raw.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise InvalidSetting(
                f"{place} is encoded in {encoding}, which cannot hold every text: make one with "
                "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0, and copy your data there"
            )
        raw.pooled = pooler or not _set_up(raw)
        if raw.pooled:
            raw.prepare_threshold = None
    except BaseException:
        raw.close()
        raise
    return raw


def _set_up(raw: OwnConnection) -> bool:
    """Make the session ours; False if it is not: the server we are told of is not the one that
    answers. Behind a pooler nothing is set."""
    session = {**raw.settings, "default_transaction_isolation": "read committed"}
    values = ", ".join(f"('{name}', '{value}')" for name, value in session.items())
    with PlainCursor(raw) as cursor:
        cursor.execute(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; "
            f"SELECT set_config(name, value, false) FROM (VALUES {values}) AS s (name, value) "
            f"WHERE pg_backend_pid() = {raw.pgconn.backend_pid}; COMMIT".encode()
        )
        found = 0
        while True:
            if cursor.description:
                found = len(cursor.fetchall())
            if not cursor.nextset():
                return found > 0
