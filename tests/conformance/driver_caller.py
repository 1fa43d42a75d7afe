"""Applications on the other drivers of PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg2.extensions

from tests.conformance.caller import Caller
from tests.conformance.place import Place

SETTINGS = "SELECT name, setting FROM pg_settings ORDER BY name"


class Rows:
    """What a statement found, to be read one by one."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> Any:
        return next(self._rows, None)


class AsyncpgCaller(Caller):
    """On asyncpg, which commits each statement unless it was told BEGIN."""

    @property
    def in_transaction(self) -> bool:
        return bool(self.raw.is_in_transaction())

    @property
    def begins_to_read(self) -> bool:
        return False

    def begin(self) -> None:
        if not self.in_transaction:
            self.sql("BEGIN")

    def sql(self, text: str) -> Rows:
        return Rows(self.wait(self.raw.fetch(text)))

    def next(self, cursor: Any) -> Any:
        row = cursor.fetchone()
        return row if row is None else tuple(row.values())

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def _end(self, word: str) -> None:
        if self.in_transaction:
            self.sql(word)

    def settings(self) -> tuple[object, ...]:
        raw: Any = self.raw
        codecs = raw._protocol.get_settings()
        return (
            raw._config,
            raw._params,
            raw._top_xact,
            [codecs.get_data_codec(oid) for oid in (20, 25, 114, 3802)],
            asyncio.get_event_loop_policy().__class__,
        )

    def session(self) -> list[Any]:
        return [tuple(row.values()) for row in self.wait(self.raw.fetch(SETTINGS))]


class Psycopg2Caller(Caller):
    """On psycopg2."""

    @property
    def in_transaction(self) -> bool:
        status = self.raw.info.transaction_status
        assert status in (
            psycopg2.extensions.TRANSACTION_STATUS_IDLE,
            psycopg2.extensions.TRANSACTION_STATUS_INTRANS,
        )
        return bool(status == psycopg2.extensions.TRANSACTION_STATUS_INTRANS)

    @property
    def begins_to_read(self) -> bool:
        return self.kind.place is Place.OPENS_BY_ITSELF

    def begin(self) -> None:
        if not self.in_transaction:
            self.sql("BEGIN" if self.raw.autocommit else "SELECT 1")

    def sql(self, text: str) -> Any:
        cursor = self.raw.cursor()
        cursor.execute(text)
        return cursor

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def _end(self, word: str) -> None:
        """In autocommit the methods do nothing: who begins by SQL also ends by SQL."""
        if not self.raw.autocommit:
            getattr(self.raw, word.lower())()
        elif self.in_transaction:
            self.sql(word)

    def settings(self) -> tuple[object, ...]:
        raw = self.raw
        return (
            raw.autocommit,
            raw.isolation_level,
            raw.readonly,
            raw.deferrable,
            raw.cursor_factory,
            raw.encoding,
            dict(raw.string_types),
        )

    def session(self) -> list[Any]:
        cursor = self.raw.cursor(cursor_factory=psycopg2.extensions.cursor)
        cursor.execute(SETTINGS)
        found: list[Any] = cursor.fetchall()
        return found
