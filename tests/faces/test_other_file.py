"""Finding B9: a connection to another SQLite file than the app's is refused: no worker looks there.

`isolated(app)` thereby protects the real database from code that has a connection of its own.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import aiosqlite
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from towline import Task, Towline
from towline.errors import UnsupportedConnection
from towline.testing import isolated

Add = Task[[int], int]


@pytest.fixture
def add(app: Towline) -> Add:
    @app.task
    def add(a: int) -> int:
        return a

    return add


@pytest.fixture
def other(tmp_path: Path, make_app: Callable[..., Towline]) -> Path:
    """A database that has the tables as well."""
    path = tmp_path / "other.db"
    make_app(f"sqlite:///{path}").migrate()
    return path


def jobs_in(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute("SELECT count(*) FROM towline_job").fetchone()
        return int(number)


def blocking(add: Add, path: Path, kind: str) -> None:
    if kind == "sqlite3":
        with closing(sqlite3.connect(path)) as connection, connection:
            add.using(on=connection).enqueue(1)
        return
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    try:
        with engine.connect() if kind == "core" else Session(engine) as theirs:
            add.using(on=theirs).enqueue(1)
            theirs.commit()
    finally:
        engine.dispose()


async def awaiting(add: Add, path: Path, kind: str) -> None:
    if kind == "aiosqlite":
        async with aiosqlite.connect(path) as connection:
            await add.using(on=connection).aenqueue(1)
            await connection.commit()
        return
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
    try:
        async with AsyncSession(engine) as session:
            await add.using(on=session).aenqueue(1)
            await session.commit()
    finally:
        await engine.dispose()


@pytest.fixture(params=["sqlite3", "core", "session", "aiosqlite", "async session"])
def enqueue(request: pytest.FixtureRequest) -> Callable[[Add, Path], None]:
    def enqueue(add: Add, path: Path) -> None:
        if request.param.startswith("a"):
            asyncio.run(awaiting(add, path, request.param))
        else:
            blocking(add, path, request.param)

    return enqueue


@pytest.fixture(params=[False, True], ids=["first use", "used before"])
def used(request: pytest.FixtureRequest, add: Add, database: Path) -> None:
    if request.param:
        blocking(add, database, "sqlite3")


def test_a_connection_to_another_file_is_refused(
    used: None, add: Add, enqueue: Callable[[Add, Path], None], database: Path, other: Path
) -> None:
    before = jobs_in(database)
    with pytest.raises(UnsupportedConnection, match=rf"{other}, and this app is on {database}"):
        enqueue(add, other)
    assert jobs_in(other) == 0
    enqueue(add, database)
    assert jobs_in(database) == before + 1


def test_reading_there_is_refused_too(app: Towline, other: Path) -> None:
    with closing(sqlite3.connect(other)) as connection, pytest.raises(UnsupportedConnection):
        app.jobs(on=connection)


def test_the_same_file_by_another_name_is_the_same(
    add: Add, enqueue: Callable[[Add, Path], None], database: Path, tmp_path: Path
) -> None:
    link, folder = tmp_path / "link.db", tmp_path / "folder"
    link.symlink_to(database)
    folder.symlink_to(tmp_path)
    enqueue(add, link)
    enqueue(add, folder / database.name)
    enqueue(add, Path(os.path.relpath(database)))
    assert jobs_in(database) == 3


def test_the_apps_file_may_be_attached_to_another(add: Add, database: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mine.db")) as connection:
        connection.execute("ATTACH ? AS jobs", [str(database)])
        add.using(on=connection).enqueue(1)
        connection.commit()
    assert jobs_in(database) == 1


def test_a_database_in_memory_may_stand_for_it(app: Towline, add: Add) -> None:
    """As in Django's tests (finding M3): the tables come from `ddl()`."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(app.ddl())
        job = add.using(on=connection).enqueue(1)
        assert app.job(job.id, on=connection).id == job.id


def test_isolated_keeps_the_real_database_as_it_is(add: Add, app: Towline, database: Path) -> None:
    with isolated(app):
        with closing(sqlite3.connect(database)) as real, pytest.raises(UnsupportedConnection):
            add.using(on=real).enqueue(1)
        with closing(sqlite3.connect(app.url.removeprefix("sqlite:///"))) as its:
            add.using(on=its).enqueue(1)
            its.commit()
        assert len(app.jobs()) == 1
    assert jobs_in(database) == 0


def test_a_connection_is_looked_at_once_and_a_new_one_in_its_place_again(
    add: Add, database: Path, other: Path
) -> None:
    """Objects of one size come to lie where another was: an id alone would not tell them apart."""
    for _ in range(20):
        seen: list[str] = []
        right = sqlite3.connect(database)
        right.set_trace_callback(seen.append)
        for number in range(3):
            add.using(on=right).enqueue(number)
        right.rollback()
        right.close()
        del right
        assert sum("database_list" in text for text in seen) == 1
        wrong = sqlite3.connect(other)
        with pytest.raises(UnsupportedConnection):
            add.using(on=wrong).enqueue(1)
        wrong.close()
        del wrong


DJANGO = """
import sys
from django.conf import settings

default = {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}
settings.configure(DATABASES={"default": default})
from django.db import connection
from towline import Towline
from towline.errors import UnsupportedConnection

app = Towline("sqlite:///" + sys.argv[2])
app.migrate()
add = app.task(name="add")(lambda: None)
try:
    add.using(on=connection).enqueue()
except UnsupportedConnection:
    print("refused")
else:
    print("stored")
"""


@pytest.fixture
def django() -> Callable[[Path, Path], str]:
    def run(theirs: Path, ours: Path) -> str:
        given: Any = [sys.executable, "-c", DJANGO, str(theirs), str(ours)]
        return subprocess.run(given, capture_output=True, text=True, check=True).stdout.strip()

    return run


def test_so_is_a_connection_of_django(
    django: Callable[[Path, Path], str], database: Path, other: Path
) -> None:
    assert django(other, database) == "refused"
    assert django(database, database) == "stored"
