"""A PostgreSQL server for the measurements: on disk, synced, and left alone by autovacuum.

What comes when it likes (vacuum, a checkpoint) would fall on one of two things that are compared.
It is started for a script and gone afterwards.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from tests.servers import DurableServer, durable_server

QUIET = {
    "autovacuum": "off",
    "checkpoint_timeout": "1h",
    "max_wal_size": "32GB",
    "shared_buffers": "1GB",
}


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", default="postgres 18", metavar="NAME")


@contextmanager
def quiet_server(name: str, **settings: str) -> Iterator[DurableServer]:
    with durable_server(name) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            for setting, value in {**QUIET, **settings}.items():
                text = SQL("ALTER SYSTEM SET {} = {}")
                connection.execute(text.format(Identifier(setting), Literal(value)))
        server.stop("fast")
        server.start()
        yield server


def run_sql(url: str, *texts: bytes) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for text in texts:
            connection.execute(text)


def version(url: str) -> str:
    with psycopg.connect(url) as connection:
        return connection.info.parameter_status("server_version") or "unknown"


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process of this machine has used; the kernel counts nanoseconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
