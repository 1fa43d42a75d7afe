"""A database that is away for a while, on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg

from tests.database import Database
from tests.worker.gate import LIMIT

# Every connection to this database but the test's own.
TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@contextmanager
def away(database: Database) -> Iterator[None]:
    """For the length of the block nobody can write."""
    if database.engine == "sqlite":
        with closing(database.connect(isolation_level=None, timeout=LIMIT)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            yield
            holder.execute("ROLLBACK")
        return
    ((name,),) = database.rows("SELECT current_database()")
    change = f"ALTER DATABASE {name} ALLOW_CONNECTIONS ".encode()
    with psycopg.connect(database.url, dbname="postgres", autocommit=True) as server:
        server.execute(change + b"false")
        database.rows(TERMINATE)
        try:
            yield
        finally:
            server.execute(change + b"true")
