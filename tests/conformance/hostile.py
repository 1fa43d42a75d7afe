"""Connections whose every setting changes what goes through them: rows, text, numbers, JSON.

An application may well set one of these; `plain` undoes them for what the application itself reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
import psycopg2.extensions
import psycopg2.extras
from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.rows import dict_row
from psycopg.types.json import set_json_dumps, set_json_loads

CHANGED_TYPES = (
    "bool", "int2", "int4", "int8", "float8", "numeric", "text", "varchar", "name",
    "json", "jsonb", "timestamptz",
)  # fmt: skip


def make_sqlite_hostile(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.row_factory = lambda cursor, row: {"hostile": row}
    connection.text_factory = bytes
    return connection


def change_sqlite_types() -> None:
    """For every connection that is opened with detect_types, until they are `restored`."""
    sqlite3.register_converter("INTEGER", lambda value: f"converted {value!r}")
    sqlite3.register_converter("TEXT", lambda value: f"converted {value!r}")


def restore_sqlite_types() -> None:
    sqlite3.converters.pop("INTEGER", None)
    sqlite3.converters.pop("TEXT", None)


def make_psycopg_hostile(connection: Any) -> Any:
    """Rows are dictionaries, cursors want $1, and every type is read and written as another."""
    awaits = isinstance(connection, psycopg.AsyncConnection)
    connection.row_factory = dict_row
    connection.cursor_factory = psycopg.AsyncRawCursor if awaits else psycopg.RawCursor
    for name in CHANGED_TYPES:
        connection.adapters.register_loader(name, TextChanged)
        connection.adapters.register_loader(name, BinaryChanged)
    for type_ in (bool, int, float, str, list, dict, type(None)):
        connection.adapters.register_dumper(type_, WrittenAsText)
    set_json_dumps(lambda value: '"changed"', connection)
    set_json_loads(lambda value: "changed", connection)
    return connection


@dataclass(frozen=True)
class Changed:
    """What a hostile connection reads instead of a value."""

    data: bytes
    binary: bool

    def plain(self) -> int:
        return int.from_bytes(self.data, "big") if self.binary else int(self.data)


class TextChanged(Loader):
    def load(self, data: Buffer) -> Changed:
        return Changed(bytes(data), binary=False)


class BinaryChanged(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> Changed:
        return Changed(bytes(data), binary=True)


class WrittenAsText(Dumper):
    oid = psycopg.adapters.types["text"].oid

    def dump(self, obj: Any) -> Buffer:
        return b"changed"


def plain(row: Any) -> tuple[Any, ...] | None:
    """A row of numbers as it would be on a connection that changes nothing."""
    if row is None:
        return None
    if isinstance(row, dict):
        (first, *_) = values = tuple(row.values())
        row = first if isinstance(first, tuple) else values
    return tuple(value.plain() if isinstance(value, Changed) else value for value in row)


class Record(asyncpg.Record):  # type: ignore[misc]
    """A record of the application's own that has no places, only names."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())


async def make_asyncpg_hostile(connection: Any) -> Any:
    """JSON goes and comes as something else, and so does text that looks like it."""
    for name in ("json", "jsonb"):
        await connection.set_type_codec(
            name, schema="pg_catalog", encoder=lambda value: '"changed"', decoder=lambda value: 5
        )
    return connection


def _changed(value: Any, cursor: Any) -> Any:
    return None if value is None else Changed(value.encode(), binary=False)


def make_psycopg2_hostile(connection: Any) -> Any:
    """Rows are dictionaries, and text and JSON are read as something else."""
    connection.cursor_factory = psycopg2.extras.RealDictCursor
    changed = psycopg2.extensions.new_type(
        (25, 1043, 19, 114, 3802, 23, 20, 21, 701), "changed", _changed
    )
    psycopg2.extensions.register_type(changed, connection)
    return connection
