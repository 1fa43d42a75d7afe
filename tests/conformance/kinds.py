"""The kinds of connection an operation is run on: ours, and callers' in every state of design/004.

A kind says how the application opens its connection and what it has done there before it calls us.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import aiosqlite
import asyncpg
import psycopg
import psycopg2

from tests import database as databases
from tests.conformance import hostile
from tests.conformance.caller import Caller, PsycopgCaller, SqliteCaller
from tests.conformance.driver_caller import AsyncpgCaller, Psycopg2Caller
from tests.conformance.framework_caller import (
    DjangoCaller,
    SqlalchemyCaller,
    async_core,
    async_orm,
    core,
    django_connection,
    orm,
)
from tests.conformance.place import Place
from tests.database import Database
from tests.speed import PROOF, drawn


@dataclass(frozen=True)
class Kind:
    name: str
    place: Place
    open: Callable[[Any], Any] = lambda database: None
    before: tuple[str, ...] = ()
    """What the application does first, each time."""
    caller: type[Caller] = SqliteCaller
    awaits: bool = False
    """Whether the application calls the awaiting face; `open` may have to be awaited."""
    played: bool = True
    """Whether every script is run on it, or only those about the connection itself."""

    @property
    def ours(self) -> bool:
        return self.place is Place.OURS

    @property
    def shared(self) -> bool:
        """Whether asyncio tasks may use the connection at a time, as far as its maker says."""
        return self.awaits and not self.ours and self.caller is not SqlalchemyCaller

    def is_tried(self, test: str, name: str) -> bool:
        """Whether `make test` has a case about callers' connections on this kind: on every one to
        SQLite, on every sixth to a server, but for states that SQLAlchemy has shown on SQLite."""
        if PROOF or name == databases.SQLITE:
            return True
        if self.caller is SqlalchemyCaller and not self.played:
            return False
        return drawn(f"{test} on {name}: {self.name}", 6)

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
        Kind("sqlite3 default, idle", by_itself, _sqlite3(), played=False),
        Kind(
            "sqlite3 IMMEDIATE, idle",
            by_itself,
            _sqlite3(isolation_level="IMMEDIATE"),
            played=False,
        ),
        Kind("sqlite3 autocommit, idle", autocommit, _sqlite3(isolation_level=None), played=False),
        Kind("sqlite3, writing", in_one, _sqlite3(), write),
        Kind("sqlite3 awaited, writing", in_one, _sqlite3(), write, awaits=True),
        # A deferred transaction that has not touched the database yet.
        Kind(
            "sqlite3 autocommit, deferred",
            in_one,
            _sqlite3(isolation_level=None),
            ("BEGIN",),
            played=False,
        ),
        Kind("sqlite3 hostile, idle", by_itself, _hostile_sqlite3),
        Kind("sqlite3 hostile, writing", in_one, _hostile_sqlite3, write, played=False),
        Kind("aiosqlite, idle", by_itself, _aiosqlite(""), awaits=True, played=False),
        Kind("aiosqlite, writing", in_one, _aiosqlite(""), write, awaits=True),
        Kind("aiosqlite autocommit, idle", autocommit, _aiosqlite(None), awaits=True, played=False),
        Kind("aiosqlite hostile, idle", by_itself, _hostile_aiosqlite, awaits=True, played=False),
        *_sqlalchemy_kinds("", "aiosqlite"),
        *_django_kinds(),
    ]
    if sys.version_info >= (3, 12):
        found += [
            Kind("sqlite3 autocommit=True, idle", autocommit, _sqlite3(autocommit=True)),
            Kind("sqlite3 autocommit=False", in_one, _sqlite3(autocommit=False)),
        ]
    return found


def _sqlalchemy_kinds(driver: str, awaited: str) -> list[Kind]:
    """Connection and Session on a driver that blocks, and their twins on one that awaits."""
    by_itself, autocommit, in_one = Place.OPENS_BY_ITSELF, Place.AUTOCOMMIT, Place.IN_TRANSACTION
    commits = {"isolation_level": "AUTOCOMMIT"}
    found = []
    for name, word, awaits, connection, session in (
        (driver or "sqlite3", "", False, core, orm),
        (awaited, "Async", True, async_core, async_orm),
    ):
        given = awaited if awaits else driver
        for kind, place, open, before in (
            ("Connection, idle", by_itself, connection(given), ()),
            ("Connection, writing", in_one, connection(given), (OWN_ROW,)),
            ("Connection autocommit, idle", autocommit, connection(given, **commits), ()),
            ("Session, idle", by_itself, session(given), ()),
            ("Session, writing", in_one, session(given), (OWN_ROW,)),
        ):
            title = f"SQLAlchemy {name} {word}{kind}"
            played = kind in ("Connection, idle", "Session, writing")
            found.append(
                Kind(title, place, open, before, SqlalchemyCaller, awaits=awaits, played=played)
            )
    return found


def _django_kinds() -> list[Kind]:
    opened, by_hand = django_connection(), django_connection(autocommit=False)
    return [
        Kind("Django, idle", Place.AUTOCOMMIT, opened, caller=DjangoCaller),
        Kind("Django in atomic, writing", Place.IN_TRANSACTION, opened, (OWN_ROW,), DjangoCaller),
        Kind(
            "Django without autocommit",
            Place.OPENS_BY_ITSELF,
            by_hand,
            caller=DjangoCaller,
            played=False,
        ),
    ]


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


def _asyncpg(database: Database) -> Any:
    return asyncpg.connect(database.url)


async def _rude_asyncpg(database: Database) -> Any:
    return await hostile.make_asyncpg_hostile(
        await asyncpg.connect(database.url, record_class=hostile.Record)
    )


def _psycopg2(**settings: Any) -> Callable[[Database], Any]:
    def opened(database: Database) -> Any:
        connection = psycopg2.connect(database.url)
        connection.set_session(**settings)
        return connection

    return opened


def _hostile_psycopg2(database: Database) -> Any:
    return hostile.make_psycopg2_hostile(psycopg2.connect(database.url))


def _postgres_kinds() -> list[Kind]:
    by_itself, autocommit, in_one = Place.OPENS_BY_ITSELF, Place.AUTOCOMMIT, Place.IN_TRANSACTION
    commits = {"autocommit": True}
    own = (OWN_ROW,)
    found = [
        *OURS,
        Kind("psycopg default, idle", by_itself, _psycopg(), played=False),
        Kind("psycopg autocommit, idle", autocommit, _psycopg(**commits), played=False),
        Kind("psycopg, writing", in_one, _psycopg(), own),
        Kind("psycopg awaited, writing", in_one, _psycopg(), own, awaits=True),
        Kind(
            "psycopg autocommit, in transaction",
            in_one,
            _psycopg(**commits),
            ("BEGIN",),
            played=False,
        ),
        Kind("psycopg hostile, idle", by_itself, _hostile_psycopg),
        Kind("psycopg hostile, writing", in_one, _hostile_psycopg, own, played=False),
        Kind("psycopg async, idle", by_itself, _awaited_psycopg(), awaits=True),
        Kind("psycopg async, writing", in_one, _awaited_psycopg(), own, awaits=True, played=False),
        Kind(
            "psycopg async autocommit, idle",
            autocommit,
            _awaited_psycopg(**commits),
            awaits=True,
            played=False,
        ),
        Kind("psycopg async hostile, idle", by_itself, _hostile_awaited, awaits=True, played=False),
    ]
    found = [kind if kind.ours else replace(kind, caller=PsycopgCaller) for kind in found]
    begin = ("BEGIN", OWN_ROW)
    return [
        *found,
        Kind("asyncpg, idle", autocommit, _asyncpg, (), AsyncpgCaller, awaits=True, played=False),
        Kind("asyncpg, writing", in_one, _asyncpg, begin, AsyncpgCaller, awaits=True),
        Kind("asyncpg hostile, idle", autocommit, _rude_asyncpg, (), AsyncpgCaller, awaits=True),
        Kind(
            "asyncpg hostile, writing",
            in_one,
            _rude_asyncpg,
            begin,
            AsyncpgCaller,
            awaits=True,
            played=False,
        ),
        Kind("psycopg2, idle", by_itself, _psycopg2(), (), Psycopg2Caller, played=False),
        Kind("psycopg2, writing", in_one, _psycopg2(), own, Psycopg2Caller),
        Kind(
            "psycopg2 autocommit, idle",
            autocommit,
            _psycopg2(**commits),
            (),
            Psycopg2Caller,
            played=False,
        ),
        Kind(
            "psycopg2 hostile, idle", by_itself, _hostile_psycopg2, (), Psycopg2Caller, played=False
        ),
        *_sqlalchemy_kinds("psycopg", "asyncpg"),
        *_sqlalchemy_kinds("psycopg2", "psycopg_async"),
        *_django_kinds(),
    ]


# On all servers but the newest: that the SQL is right there, not every way of calling it.
FEW = ("ours, blocking", "psycopg, writing")


def kinds(name: str) -> list[Kind]:
    """The kinds to try on the database of that name."""
    if name == databases.SQLITE:
        return _sqlite_kinds()
    found = _postgres_kinds()
    if name == databases.newest():
        return found
    return [replace(kind, played=kind.ours) for kind in found if kind.name in FEW]


def cells() -> list[tuple[str, Kind]]:
    """Every database with each of its kinds."""
    return [(name, kind) for name in databases.names() for kind in kinds(name)]


def plain(test: str, name: str, kind: Kind) -> bool:
    """Whether it is our own connection: blocking on SQLite and the newest server; awaiting, and
    elsewhere, every sixth script. An operation cannot see who awaits it."""
    if not kind.ours:
        return False
    if name in (databases.SQLITE, databases.newest()) and not kind.awaits:
        return True
    return drawn(f"{test} on {name}: {kind.name}", 6)
