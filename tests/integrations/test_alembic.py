"""Our tables in Alembic's migrations: as `app.migrate()` makes them, and never proposed to go."""

from __future__ import annotations

import io
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, Table, create_engine

from tests import servers
from tests.postgres.catalogue import catalogue
from tests.postgres.steps import INDEX, KNOWN, MORE, know_steps, recorded
from towline import Towline
from towline.errors import InvalidSetting
from towline.integrations.alembic import not_ours, upgrade

ENV = """
from alembic import context
from sqlalchemy import create_engine

from models import app, metadata
from towline.integrations.alembic import not_ours

options = {"target_metadata": metadata, "include_name": not_ours(app)}
url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url, dialect_opts={"paramstyle": "named"}, **options)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = create_engine(url)
    with engine.connect() as connection:
        context.configure(connection=connection, **options)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()
"""
MODELS = """
from sqlalchemy import Column, Integer, MetaData, Table
from towline import Towline

app = Towline({url!r}, schema={schema!r})
metadata = MetaData()
Table("orders", metadata, Column("id", Integer, primary_key=True))
"""
VERSION = """
import sqlalchemy as sa
from alembic import op

from models import app
from towline.integrations.alembic import upgrade as upgrade_towline

revision = "a1"
down_revision = None

def upgrade():
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
    upgrade_towline(op, app)
"""


class Place:
    """A database, and a project with Alembic for it."""

    def __init__(self, folder: Path, url: str, schema: str) -> None:
        self.url, self.schema, self.folder = url, schema, folder
        self.driver_url = url.replace("postgresql://", "postgresql+psycopg://")
        (folder / "env.py").write_text(ENV)
        (folder / "models.py").write_text(MODELS.format(url=url, schema=schema))
        (folder / "versions").mkdir()
        (folder / "versions" / "a1.py").write_text(VERSION)
        self.app = Towline(url, schema=schema)

    @property
    def config(self) -> Config:
        config = Config()
        config.set_main_option("script_location", str(self.folder))
        config.set_main_option("path_separator", "os")
        config.set_main_option("sqlalchemy.url", self.driver_url.replace("%", "%%"))
        return config

    def schema_of(self, url: str) -> Any:
        """All that is there, apart from Alembic's own table and the application's."""
        if url.startswith("postgresql"):
            found = catalogue(url, self.schema)
            return {what: [row for row in rows if not theirs(row)] for what, rows in found.items()}
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            rows = connection.execute("SELECT name, sql FROM sqlite_master").fetchall()
        return {row for row in rows if not theirs(row)}


def theirs(row: tuple[Any, ...]) -> bool:
    return any("alembic" in str(word) or "orders" in str(word) for word in row)


@pytest.fixture(params=["sqlite", "postgres", "postgres in a schema"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    folder = tmp_path / "alembic"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "models", raising=False)
    if request.param == "sqlite":
        yield Place(folder, f"sqlite:///{tmp_path}/shop.db", "public")
        return
    schema = "public" if request.param == "postgres" else "jobs"
    with servers.server(servers.servers()[-1]).database() as url:
        yield Place(folder, url, schema)


def proposals(place: Place, **options: Any) -> list[Any]:
    metadata = MetaData()
    Table("orders", metadata, Column("id", Integer, primary_key=True))
    engine = create_engine(place.driver_url)
    try:
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts=options)
            return list(compare_metadata(context, metadata))
    finally:
        engine.dispose()


def test_I8_the_schema_is_that_of_migrate_and_nothing_is_proposed(
    place: Place, tmp_path: Path
) -> None:
    command.upgrade(place.config, "head")
    if place.url.startswith("sqlite"):
        other = f"sqlite:///{tmp_path}/other.db"
        by_us = Towline(other)
        by_us.migrate()
        by_us.close()
        assert place.schema_of(place.url) == place.schema_of(other)
    else:
        with servers.server(servers.servers()[-1]).database() as other:
            by_us = Towline(other, schema=place.schema)
            by_us.migrate()
            by_us.close()
            assert place.schema_of(place.url) == place.schema_of(other)
    assert place.app.migrate() == [], "and it knows that it is there"
    place.app.close()
    schemas = place.schema == "jobs"
    options = {"include_schemas": schemas}
    assert proposals(place, include_name=not_ours(place.app), **options) == []
    unguarded = proposals(place, **options)
    dropped = [change[1].name for change in unguarded if change[0] == "remove_table"]
    assert "towline_job" in dropped, "which is what the guard is for"
    command.check(place.config)


def test_I8_offline_it_prints_what_can_be_run(place: Place, tmp_path: Path) -> None:
    printed = io.StringIO()
    config = place.config
    config.output_buffer = printed
    with redirect_stdout(printed):
        command.upgrade(config, "head", sql=True)
    text = printed.getvalue()
    if place.url.startswith("sqlite"):
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
            connection.executescript(text)
    else:
        with psycopg.connect(place.url, autocommit=True) as connection:
            connection.execute(text.encode())
    assert place.app.migrate() == []
    place.app.close()


def test_I8_what_the_application_says_of_other_names_is_asked(tmp_path: Path) -> None:
    app = Towline(f"sqlite:///{tmp_path}/x.db", prefix="jobs_")
    asked: list[str | None] = []

    def mine(name: str | None, kind: str, parents: Any) -> bool:
        asked.append(name)
        return name != "old"

    include = not_ours(app, mine)
    plain = {"schema_name": None}
    tables = ("jobs_job", "old", "new")
    assert [include(name, "table", plain) for name in tables] == [False, False, True]
    assert include("jobs_job", "column", {"schema_name": None, "table_name": "orders"})
    assert not include("jobs_live", "table", {"schema_name": "public"})
    assert include("jobs_live", "table", {"schema_name": "another"})
    assert asked == ["old", "new", "jobs_job", "jobs_live"]


def test_I8_a_migration_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    app = Towline(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(InvalidSetting, match="0001-initial"):
        upgrade(None, app, after="0042")


SECOND = """
from alembic import op

from models import app
from towline.integrations.alembic import upgrade as upgrade_towline

revision = "a2"
down_revision = "a1"

def upgrade():
    upgrade_towline(op, app, after="0001-initial")
"""


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_I8_a_later_release_brings_its_steps_also_what_is_built_outside_a_transaction(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    command.upgrade(place.config, "head")
    noted = f"{MORE}\nCOMMENT ON COLUMN {{job}}.more IS 'at :noon, 100 %';"
    know_steps({"0900-more": noted, "0901-index": INDEX}, monkeypatch.setattr)
    (place.folder / "versions" / "a2.py").write_text(SECOND)
    del sys.modules["models"]  # of the release before
    command.upgrade(place.config, "head")
    assert recorded(place.url) == [*KNOWN, "0900-more", "0901-index"]
    assert "towline_job_more" in {row[0] for row in catalogue(place.url)["indexes"]}
    assert place.app.migrate() == []
    place.app.close()
