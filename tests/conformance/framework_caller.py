"""Applications that have their connection from a framework: SQLAlchemy, Django."""

from __future__ import annotations

import itertools
from typing import Any

import django
import sqlalchemy
from django.conf import settings as django_settings
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.conformance.caller import Caller
from tests.conformance.driver_caller import SETTINGS
from tests.conformance.place import Place
from tests.database import Database

PRAGMAS = "busy_timeout", "foreign_keys", "query_only", "synchronous", "wal_autocheckpoint"
DRIVER_SETTINGS = (
    "isolation_level", "row_factory", "text_factory", "autocommit", "read_only", "deferrable",
    "prepare_threshold", "prepared_max", "cursor_factory", "readonly", "encoding",
)  # fmt: skip


def has_begun(driver: Any) -> bool:
    """Whether the driver's connection is in a transaction, whatever the framework thinks."""
    if hasattr(driver, "is_in_transaction"):
        return bool(driver.is_in_transaction())
    if hasattr(driver, "in_transaction"):
        return bool(driver.in_transaction)
    return bool(driver.info.transaction_status != 0)


def settings_of(driver: Any) -> tuple[object, ...]:
    raw = getattr(driver, "_conn", driver)
    return tuple(repr(getattr(raw, name, None)) for name in DRIVER_SETTINGS)


class FrameworkCaller(Caller):
    driver: Any = None

    @property
    def in_transaction(self) -> bool:
        return self.driver is not None and has_begun(self.driver)

    @property
    def begins_to_read(self) -> bool:
        return self.database.engine != "sqlite" and self.kind.place is Place.OPENS_BY_ITSELF

    def session(self) -> list[Any]:
        if self.database.engine == "sqlite":
            return [self.next(self.sql(f"PRAGMA {name}")) for name in PRAGMAS]
        return [tuple(row) for row in self.sql(SETTINGS).fetchall()]

    def next(self, cursor: Any) -> Any:
        row = cursor.fetchone()
        return row if row is None else tuple(row)


class SqlalchemyCaller(FrameworkCaller):
    """On a Connection, a Session, or one of the two that await."""

    def __init__(self, kind: Any, app: Any, database: Database) -> None:
        self.engine: Any = None
        super().__init__(kind, app, database)

    def start(self) -> None:
        engine: sqlalchemy.Engine = getattr(self.raw, "bind", None) or self.raw.engine
        self.engine = getattr(engine, "sync_engine", engine)
        if self.driver is None:
            event.listen(self.engine, "checkout", self._remember)
            self.sql("SELECT 1")  # a session has no connection before
            self._finish(self.raw.rollback())
            self.driver = self.driver or self._driver()
        super().start()

    def _remember(self, connection: Any, record: Any, proxy: Any) -> None:
        self.driver = record.driver_connection

    def _driver(self) -> Any:
        raw: Any = self.raw.sync_connection if isinstance(self.raw, AsyncConnection) else self.raw
        return raw.connection.driver_connection

    def begin(self) -> None:
        if self.kind.place is Place.AUTOCOMMIT:
            if not self.in_transaction:
                self.sql("BEGIN")
        elif not self.raw.in_transaction():
            self._finish(self.raw.begin())

    def commit(self) -> None:
        self._end("COMMIT")

    def rollback(self) -> None:
        self._end("ROLLBACK")

    def _end(self, word: str) -> None:
        if self.kind.place is Place.AUTOCOMMIT and self.in_transaction:
            self.sql(word)
        self._finish(getattr(self.raw, word.lower())())

    def sql(self, text: str) -> Any:
        return self._finish(self.raw.execute(sqlalchemy.text(text)))

    def settings(self) -> tuple[object, ...]:
        raw = self.raw
        if isinstance(raw, (Session, AsyncSession)):
            own: tuple[object, ...] = (raw.autoflush, dict(raw.info), raw.bind)
        else:
            own = (raw.get_execution_options() if isinstance(raw, sqlalchemy.Connection) else None,)
        return (*own, settings_of(self.driver) if self.driver else None)

    def close(self) -> None:
        engine = self.engine
        self._finish(self.raw.close())
        if self.kind.awaits and engine.dialect.is_async:
            self.wait(AsyncEngine(engine).dispose())
        else:
            engine.dispose()
        if self._runner:
            self._runner.close()


def url_for(database: Database, driver: str) -> str:
    scheme, rest = database.url.split(":", 1)
    return f"{scheme}+{driver}:{rest}" if driver else database.url


def core(driver: str = "", **options: Any) -> Any:
    """How an application opens a Connection."""
    return lambda database: sqlalchemy.create_engine(url_for(database, driver), **options).connect()


def orm(driver: str = "", **options: Any) -> Any:
    return lambda database: Session(
        sqlalchemy.create_engine(url_for(database, driver), **options), expire_on_commit=False
    )


def async_core(driver: str, **options: Any) -> Any:
    async def opened(database: Database) -> AsyncConnection:
        return await create_async_engine(url_for(database, driver), **options).connect()

    return opened


def async_orm(driver: str, **options: Any) -> Any:
    return lambda database: AsyncSession(
        create_async_engine(url_for(database, driver), **options), expire_on_commit=False
    )


class DjangoCaller(FrameworkCaller):
    """On one of Django's connections, in `atomic` or out of it."""

    atomic: Any = None

    def start(self) -> None:
        self.driver = self.raw.connection
        if self.kind.in_transaction:
            self.begin()
        super().start()

    def begin(self) -> None:
        from django.db import transaction

        if self.kind.place is Place.OPENS_BY_ITSELF:
            self.sql("SELECT 1")
        elif self.atomic is None:
            self.atomic = transaction.atomic(using=self.raw.alias)
            self.atomic.__enter__()

    def commit(self) -> None:
        if self.atomic:
            self.atomic.__exit__(None, None, None)
            self.atomic = None
        elif self.kind.place is Place.OPENS_BY_ITSELF:
            self.raw.commit()

    def rollback(self) -> None:
        from django.db import transaction

        if self.atomic:
            transaction.set_rollback(True, using=self.raw.alias)
            self.commit()
        elif self.kind.place is Place.OPENS_BY_ITSELF:
            self.raw.rollback()

    def sql(self, text: str) -> Any:
        cursor = self.raw.cursor()
        cursor.execute(text)
        return cursor

    def settings(self) -> tuple[object, ...]:
        raw = self.raw
        return (raw.autocommit, raw.in_atomic_block, raw.isolation_level if
                hasattr(raw, "isolation_level") else None, settings_of(self.driver))  # fmt: skip

    def close(self) -> None:
        from django.db import connections

        known: Any = connections.settings
        if self.atomic:
            self.rollback()
        self.raw.close()
        del connections[self.raw.alias]
        del known[self.raw.alias]


_names = itertools.count()


def django_connection(*, autocommit: bool = True) -> Any:
    """How an application has its connection: by an alias in its settings."""

    def opened(database: Database) -> Any:
        from django.db import connections

        if not django_settings.configured:
            django_settings.configure(USE_TZ=True)
            django.setup()
        alias = f"database{next(_names)}"
        if database.engine == "sqlite":
            place: dict[str, Any] = {
                "ENGINE": "django.db.backends.sqlite3",
                "NAME": database.url[10:],
            }
        else:
            parts = sqlalchemy.engine.make_url(database.url)
            place = {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts.database or "",
                "USER": parts.username or "",
                "PASSWORD": parts.password or "",
                "HOST": parts.query.get("host", parts.host) or "",
                "PORT": str(parts.query.get("port", parts.port) or ""),
            }
        known: Any = connections.settings
        known[alias] = connections.configure_settings({"default": place})["default"]
        connection: Any = connections[alias]
        connection.ensure_connection()
        if not autocommit:
            connection.set_autocommit(False)
        return connection

    return opened
