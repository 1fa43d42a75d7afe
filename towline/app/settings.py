"""The settings of an app, checked once: those of every engine, those of PostgreSQL alone; and the
engine that a URL names."""

from __future__ import annotations

import os
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from ..engine import FILE, Engine, EngineSettings, ServerSettings, settled
from ..errors import InvalidSetting
from ..secret import masked
from ..sql import check_prefix
from ..store.retention import KeepFor
from ..times import Seconds, micros

DEFAULT_URL = "sqlite:///towline.db"
SERVER = ("postgresql://", "postgres://")
# Names of arguments and outputs whose values are shown to nobody, unless others are given.
SECRET_NAMES = ("*password*", "*passwd*", "*secret*", "*token*", "*api_key*", "authorization")
# What names a place that only PostgreSQL has. `notify` and `connections` bound what is done there,
# and are kept by doing less.
ONLY_A_SERVER_HAS = ("schema", "pooler", "listen")


class Settings(Struct, frozen=True):
    """The settings of an app, as they were checked."""

    engine: EngineSettings
    payload_limit: int
    keep: KeepFor
    secret_names: tuple[str, ...]

    def at(self, url: str, schema: str | None = None, **changed: object) -> Settings:
        """The same for another database."""
        given = {name: value for name, value in changed.items() if value is not None}
        if schema is not None:
            given["server"] = replace(self.engine.server, schema=check_prefix(schema, "schema"))
        engine = replace(self.engine, url=check_url(url), **given)
        return replace(self, engine=engine)


def default_url() -> str:
    return os.environ.get("TOWLINE_URL") or DEFAULT_URL


def check_settings(
    engine: EngineSettings,
    payload_limit: int,
    keep: Iterable[Seconds | None],
    secret_names: Iterable[str],
) -> Settings:
    """The settings, or InvalidSetting for the first that makes no sense."""
    server = engine.server
    ages = [None if age is None else micros(age, "a retention time") for age in keep]
    if any(age is not None and age < 0 for age in ages):
        raise InvalidSetting("a retention time cannot be negative; None keeps for ever")
    if engine.lock_timeout < 0:
        raise InvalidSetting("lock_timeout cannot be negative")
    if payload_limit < 1:
        raise InvalidSetting("payload_limit is a number of bytes from 1")
    if server.connections < 1:
        raise InvalidSetting("connections is a number from 1")
    if server.listen is not None and not isinstance(server.listen, str):
        raise InvalidSetting("listen= is an address, postgresql://…; notify=False turns it off")
    names = tuple(secret_names)
    if isinstance(secret_names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidSetting('secret_names= is a list of names or patterns, such as ["*token*"]')
    check_prefix(server.schema, "schema")
    check_prefix(engine.prefix)
    engine = replace(engine, url=check_url(engine.url))
    _refuse_on_sqlite(engine)
    return Settings(engine, payload_limit, KeepFor(*ages), tuple(map(str.lower, names)))


def check_url(url: str) -> str:
    """The URL, with a file's whole path in it."""
    if not isinstance(url, str):
        raise InvalidSetting(f"a URL is text, not {type(url).__name__}")
    return settled(url)


def _refuse_on_sqlite(engine: EngineSettings) -> None:
    usual = ServerSettings()
    for name in ONLY_A_SERVER_HAS:
        if engine.url.startswith(FILE) and getattr(engine.server, name) != getattr(usual, name):
            raise InvalidSetting(
                f"{name}= belongs to PostgreSQL and means nothing for a SQLite file: leave it out"
            )


def open_engine(settings: EngineSettings) -> Engine:
    """The engine of a URL; its driver is imported only now."""
    if settings.url.startswith(FILE):
        from ..sqlite.engine import SqliteEngine

        return SqliteEngine(settings)
    if not settings.url.startswith(SERVER):
        raise _unknown(settings.url)
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise InvalidSetting("PostgreSQL needs psycopg: pip install -e '.[postgres]'") from error
    from ..postgres.engine import PostgresEngine

    return PostgresEngine(settings)


def _unknown(url: str) -> InvalidSetting:
    scheme, _, rest = url.partition("://")
    kind, plus, driver = scheme.partition("+")
    hint = ""
    if plus and rest and kind in ("postgresql", "postgres", "sqlite"):
        hint = f"; write it without +{driver}"
    return InvalidSetting(
        f"{masked(url)!r} is not a database Towline knows{hint}: use "
        "postgresql://user@host/database, sqlite:///relative.db or sqlite:////absolute/path.db"
    )
