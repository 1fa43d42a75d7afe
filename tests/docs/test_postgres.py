"""guides/run/postgres.md runs: its Python as the roles it names, its SQL as a superuser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests import servers
from tests.docs.blocks import ROOT, program_of, run

PAGE = ROOT / "docs" / "guides" / "run" / "postgres.md"
HOST = "db.example.com/shop"
ROLES = ("shop_migrator", "shop_worker")


@pytest.fixture
def database() -> Iterator[str]:
    with servers.server(servers.servers()[-1]).database() as url:
        yield url


@pytest.fixture
def names(database: str) -> Iterator[dict[str, str]]:
    """What stands on the page, and what is there; roles belong to the server, so to this test."""
    parts = urlsplit(database)
    place = f"{parts.netloc.rpartition('@')[2]}{parts.path}?{parts.query}"
    mark = uuid4().hex[:8]
    roles = {role: f"{role}_{mark}" for role in ROLES}
    yield {f"shop@{HOST}": f"{parts.username}@{place}", HOST: place, **roles}
    with psycopg.connect(database, autocommit=True) as connection:
        for role in roles.values():
            connection.execute(SQL("DROP OWNED BY {} CASCADE").format(Identifier(role)))
            connection.execute(SQL("DROP ROLE {}").format(Identifier(role)))


def test_the_page_runs(tmp_path: Path, database: str, names: dict[str, str]) -> None:
    program = program_of(PAGE, names, database)
    assert program.count("_stage.sql(") >= 3
    printed = run(program, tmp_path)
    assert 'CREATE TABLE "public".towline_job' in printed
    with psycopg.connect(database) as connection:
        stored = connection.execute("SELECT task, state FROM jobs.towline_jobs").fetchall()
    assert stored == [("pack", "pending")]


def test_the_grants_are_all_that_a_worker_has(
    tmp_path: Path, database: str, names: dict[str, str]
) -> None:
    """The role of the page owns nothing: it works by what the page grants it."""
    run(program_of(PAGE, names, database), tmp_path)
    with psycopg.connect(database) as connection:
        owned = connection.execute(
            "SELECT count(*) FROM pg_class WHERE relowner = %s::regrole", [names["shop_worker"]]
        ).fetchone()
        rights = connection.execute(
            "SELECT DISTINCT privilege_type FROM information_schema.role_table_grants "
            "WHERE grantee = %s ORDER BY 1",
            [names["shop_worker"]],
        ).fetchall()
    assert owned == (0,)
    assert [right for (right,) in rights] == ["DELETE", "INSERT", "SELECT", "UPDATE"]
