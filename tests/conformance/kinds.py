"""The kinds of connection an operation is run on: ours, and callers' in every state of design/004.

A kind says how the application opens its connection and what it has done there before it calls us.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import aiosqlite
import psycopg

from tests import database as databases
from tests.conformance import hostile
from tests.database import Database


class Place(Enum):
    """Where the connection stands when we get it: the rows of the table."""

    IN_TRANSACTION = "in a transaction"
    OPENS_BY_ITSELF = "idle, and the driver begins at the next statement"
    AUTOCOMMIT = "idle, and each statement commits"
    OURS = "our own connection"


@dataclass(frozen=True)
class Kind:
    name: str
    place: Place
    open: Callable[[Any], Any] = lambda database: None
    before: tuple[str, ...] = ()
    """What the application does first, each time."""
    awaits: bool = False
    """`open` is awaited, and so is all that is done with the connection."""
    played: bool = True
    """Whether every script is run on it, or only those about the connection itself."""

    @property
    def ours(self) -> bool:
        return self.place is Place.OURS

    @property
    def in_transaction(self) -> bool:
        return self.place is Place.IN_TRANSACTION

    @property
    def idle(self) -> bool:
        return self.place in (Place.OPENS_BY_ITSELF, Place.AUTOCOMMIT)


OURS = (
    Kind("ours, blocking", Place.OURS),
    Kind("ours, awaiting", Place.OURS, awaits=True),
)
OWN_ROW = "INSERT INTO mine DEFAULT VALUES"


def _sqlite3(**settings: Any) -> Callable[[Database], sqlite3.Connection]:
    return lambda database: database.connect(**settings)


def _hostile_sqlite3(database: Database) -> sqlite3.Connection:
    hostile.change_sqlite_types()
    connection: sqlite3.Connection = database.connect(detect_types=sqlite3.PARSE_DECLTYPES)
    return hostile.make_sqlite_hostile(connection)


def _aiosqlite(level: Any) -> Callable[[databases.SqliteDatabase], Any]:
    return lambda database: aiosqlite.connect(database.path, isolation_level=level)


async def _hostile_aiosqlite(database: databases.SqliteDatabase) -> aiosqlite.Connection:
    connection = await aiosqlite.connect(database.path)
    hostile.make_sqlite_hostile(connection._conn)
    return connection


def _sqlite_kinds() -> list[Kind]:
    by_itself, autocommit, in_one = Place.OPENS_BY_ITSELF, Place.AUTOCOMMIT, Place.IN_TRANSACTION
    write = ("BEGIN IMMEDIATE", OWN_ROW)
    found = [
        *OURS,
        Kind("sqlite3 default, idle", by_itself, _sqlite3()),
        Kind("sqlite3 IMMEDIATE, idle", by_itself, _sqlite3(isolation_level="IMMEDIATE")),
        Kind("sqlite3 autocommit, idle", autocommit, _sqlite3(isolation_level=None)),
        Kind("sqlite3, writing", in_one, _sqlite3(), write),
        # A deferred transaction that has not touched the database yet.
        Kind("sqlite3 autocommit, deferred", in_one, _sqlite3(isolation_level=None), ("BEGIN",)),
        Kind("sqlite3 hostile, idle", by_itself, _hostile_sqlite3),
        Kind("sqlite3 hostile, writing", in_one, _hostile_sqlite3, write),
        Kind("aiosqlite, idle", by_itself, _aiosqlite(""), awaits=True),
        Kind("aiosqlite, writing", in_one, _aiosqlite(""), write, awaits=True),
        Kind("aiosqlite autocommit, idle", autocommit, _aiosqlite(None), awaits=True),
        Kind("aiosqlite hostile, idle", by_itself, _hostile_aiosqlite, awaits=True, played=False),
    ]
    if sys.version_info >= (3, 12):
        found += [
            Kind("sqlite3 autocommit=True, idle", autocommit, _sqlite3(autocommit=True)),
            Kind("sqlite3 autocommit=False", in_one, _sqlite3(autocommit=False)),
        ]
    return found


def _psycopg(**settings: Any) -> Callable[[Database], psycopg.Connection[Any]]:
    return lambda database: database.connect(**settings)


def _hostile_psycopg(database: Database) -> psycopg.Connection[Any]:
    connection: psycopg.Connection[Any] = hostile.make_psycopg_hostile(database.connect())
    return connection


def _awaited_psycopg(**settings: Any) -> Callable[[Database], Any]:
    return lambda database: psycopg.AsyncConnection.connect(database.url, **settings)


async def _hostile_awaited(database: Database) -> psycopg.AsyncConnection[Any]:
    connection: psycopg.AsyncConnection[Any] = hostile.make_psycopg_hostile(
        await psycopg.AsyncConnection.connect(database.url)
    )
    return connection


def _postgres_kinds() -> list[Kind]:
    by_itself, autocommit, in_one = Place.OPENS_BY_ITSELF, Place.AUTOCOMMIT, Place.IN_TRANSACTION
    commits = {"autocommit": True}
    return [
        *OURS,
        Kind("psycopg default, idle", by_itself, _psycopg()),
        Kind("psycopg autocommit, idle", autocommit, _psycopg(**commits)),
        Kind("psycopg, writing", in_one, _psycopg(), (OWN_ROW,)),
        Kind("psycopg autocommit, in transaction", in_one, _psycopg(**commits), ("BEGIN",)),
        Kind("psycopg hostile, idle", by_itself, _hostile_psycopg),
        Kind("psycopg hostile, writing", in_one, _hostile_psycopg, (OWN_ROW,)),
        Kind("psycopg async, idle", by_itself, _awaited_psycopg(), awaits=True),
        Kind("psycopg async, writing", in_one, _awaited_psycopg(), (OWN_ROW,), awaits=True),
        Kind(
            "psycopg async autocommit, idle", autocommit, _awaited_psycopg(**commits), awaits=True
        ),
        Kind("psycopg async hostile, idle", by_itself, _hostile_awaited, awaits=True, played=False),
    ]


# On all servers but the newest: that the SQL is right there, not every way of calling it.
FEW = ("ours, blocking", "psycopg, writing", "psycopg async, idle")


def kinds(name: str) -> list[Kind]:
    """The kinds to try on the database of that name."""
    if name == databases.SQLITE:
        return _sqlite_kinds()
    found = _postgres_kinds()
    return found if name == databases.newest() else [kind for kind in found if kind.name in FEW]


def cells() -> list[tuple[str, Kind]]:
    """Every database with each of its kinds."""
    return [(name, kind) for name in databases.names() for kind in kinds(name)]
