"""The application's own app on a throw-away database, for as long as a test needs it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from ..app import Towline
from ..app.settings import SERVER, Settings, open_engine
from ..errors import InvalidSetting
from ..secret import masked


@contextmanager
def isolated(
    app: Towline | None = None, *, clock: Callable[[], int] | None = None, url: str | None = None
) -> Iterator[Towline]:
    """Point the app, tasks and all, at an empty database; put it back afterwards.

    That is a SQLite file of its own or, with the URL of a PostgreSQL database, a schema of its own
    there. Without an app a new one is made. The file or schema is gone after the block. Jobs of
    the real database are neither seen nor touched, and a worker of the real one must not run in
    this process.
    """
    with _schema(url) if url else _file() as (place, schema):
        if app is None:
            app = Towline(place, schema=schema, durable=False, clock=clock)
            before = None
        else:
            before = app.settings
            app.use(place, schema=schema, durable=False, clock=clock)
        try:
            app.migrate()
            yield app
        finally:
            app.close()
            if before is not None:
                work_by(app, before)


def work_by(app: Towline, settings: Settings) -> None:
    """Let the app have exactly these settings: those that it had before, or nearly those."""
    app.runner.use(open_engine(settings.engine))
    app.settings = settings


@contextmanager
def _file() -> Iterator[tuple[str, str]]:
    with TemporaryDirectory(prefix="towline-test-") as folder:
        yield f"sqlite:///{folder}/test.db", "public"


@contextmanager
def _schema(url: str) -> Iterator[tuple[str, str]]:
    if not url.startswith(SERVER):
        raise InvalidSetting(
            f"tests run in schemas of a PostgreSQL database, which {masked(url)!r} does not name; "
            "without a URL each has a SQLite file"
        )
    schema = f"towline_test_{os.urandom(6).hex()}"
    try:
        yield url, schema
    finally:
        _drop(url, schema)


def _drop(url: str, schema: str) -> None:
    import psycopg
    from psycopg.sql import SQL, Identifier

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(Identifier(schema)))
