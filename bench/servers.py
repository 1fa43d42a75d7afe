"""A PostgreSQL server for a run: on disk and synced, gone afterwards.

For systems beside each other it is as people run it, autovacuum included. `quiet_server` is for two
revisions of ourselves: what comes when it likes (vacuum, a checkpoint) would fall on one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from tests.servers import DurableServer, MissingServer, durable_server, run_folder

USUAL = {"shared_buffers": "256MB", "max_wal_size": "4GB", "checkpoint_timeout": "15min"}
QUIET = {
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "max_wal_size": "32GB",
    "shared_buffers": "1GB",
}
NEWEST = "postgres 18"

__all__ = ["MissingServer", "NEWEST", "quiet_server", "run_folder", "usual_server"]


@contextmanager
def usual_server(name: str = NEWEST) -> Iterator[DurableServer]:
    with _server(name, USUAL) as server:
        yield server


@contextmanager
def quiet_server(name: str = NEWEST) -> Iterator[DurableServer]:
    with _server(name, QUIET) as server:
        yield server


@contextmanager
def _server(name: str, settings: dict[str, str]) -> Iterator[DurableServer]:
    with durable_server(name) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            for setting, value in settings.items():
                text = SQL("ALTER SYSTEM SET {} = {}")
                connection.execute(text.format(Identifier(setting), Literal(value)))
        server.stop("fast")
        server.start()
        yield server
