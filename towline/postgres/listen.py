"""Hears the NOTIFYs of other connections: the wake of the PostgreSQL engine.

A connection of its own, outside the pool and never in a transaction. It is only a hint: while it is
away nothing is lost, and when it is back it rings once for whatever it did not hear.

Two channels. On the engine's own a payload is a queue that got work; the engine sends it after its
commits, and within those of callers. On `…_ended` a worker says that chains have ended, for callers
of `result()`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.sql import SQL, Identifier

from ..connections.psycopg import PlainCursor, execute
from ..store.ground import as_json
from ..wakes.thread import BackOff, WakeThread
from .address import Address
from .own_connection import OwnConnection
from .store import ended_channel

if TYPE_CHECKING:
    from ..wakes import Changed, Ring
    from .engine import PostgresEngine

log = logging.getLogger("towline.wakes")

# PostgreSQL 13 has no such setting.
IDLE_FOR_EVER = """
SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'
"""
SILENCE = 5.0  # seconds without an answer, after which the connection is given up
RECONNECT = 1.0  # seconds between two tries to connect: workers wait for it after an outage
ENDED_EVERY = 0.02  # seconds from one word of ended chains to the next, at least


class PostgresListen:
    """Rings when work is committed to this database; with `ends` when chains have ended.

    `listen_url` leads to the same database past a pooler in transaction mode, behind which nothing
    is heard; None takes the engine's own.
    """

    def __init__(
        self, engine: PostgresEngine, listen_url: str | None = None, *, ends: bool = False
    ) -> None:
        self._engine = engine
        self._ended = ended_channel(engine.channel)
        self._hears = self._ended if ends else engine.channel
        self._address = engine.address if listen_url is None else Address(listen_url)
        self._thread = WakeThread("listen")
        self._heard: set[str] = set()  # payloads of notices
        self._owed = False  # word of ended chains, still to be sent
        self._sent = 0.0

    def start(self, ring: Ring) -> None:
        """Begin to listen; rings once connected, for what was committed before."""
        self._owed = False
        self._thread.start(lambda: self._run(ring))
        self._engine.listeners.add(self)

    def on_change(self, changed: Changed) -> None:
        self._thread.on_change = changed

    def stop(self) -> None:
        """End the thread and its connection; a second call does nothing."""
        self._engine.listeners.discard(self)
        self._thread.stop()

    def tell(self, queues: Collection[str]) -> None:
        """Do nothing: the engine has sent it."""

    def tell_ended(self) -> bool:
        """Say that chains ended. Returns at once: it is said from our thread, at most every 20 ms,
        and not at all while there is no connection; False when there is no thread."""
        if not self._thread.running:
            return False
        if not self._owed:
            self._owed = True
            self._thread.poke()
        return True

    # ---- in the thread

    def _run(self, ring: Ring) -> None:
        back_off = BackOff(longest=RECONNECT)
        while not self._thread.stopping:
            try:
                with closing(OwnConnection.connect(self._address.conninfo, autocommit=True)) as raw:
                    raw.bound = SILENCE
                    self._subscribe(raw)
                    back_off.reset()
                    self._thread.restored()
                    ring(None)
                    self._hear(raw, ring)
            except psycopg.Error as error:
                if self._thread.lost():
                    log.info("not listening to %s, trying again: %s", self._engine.place, error)
                self._owed = False
                self._thread.pause(back_off())

    def _subscribe(self, raw: psycopg.Connection[Any]) -> None:
        self._heard.clear()
        raw.add_notify_handler(lambda notice: self._heard.add(notice.payload))
        raw.execute(IDLE_FOR_EVER)
        raw.execute(SQL("LISTEN {}").format(Identifier(self._hears)))

    def _hear(self, raw: psycopg.Connection[Any], ring: Ring) -> None:
        while not self._thread.stopping:
            if self._thread.wait(self._send_owed(raw), raw.fileno()):
                raw.pgconn.consume_input()  # raises when the connection is gone
                while notice := raw.pgconn.notifies():
                    self._heard.add(notice.extra.decode())
            if self._heard:
                queues, self._heard = self._heard, set()
                ring(None if self._hears == self._ended else queues)

    def _send_owed(self, raw: psycopg.Connection[Any]) -> float | None:
        """Send what is owed, if it is time; say how long to wait until it is."""
        if not self._owed:
            return None
        early = self._sent + ENDED_EVERY - time.monotonic()
        if early > 0:
            return early
        self._owed = False  # before it is sent: what ends from now on is owed again
        with PlainCursor(raw) as cursor:
            sql = self._engine.sql
            execute(cursor, sql.notify_alone(channel=self._ended, queues=as_json([""])), False)
        self._sent = time.monotonic()
        return 0.0  # the answer may have brought other notifications along
