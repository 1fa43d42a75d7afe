"""E2: what frameworks hand around besides plain connections and sessions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tests import database as databases
from tests.conformance.framework_caller import url_for
from tests.database import Database
from towline import Towline
from towline.errors import UnsupportedConnection

AWAITED = {"sqlite": "aiosqlite", "postgres": "asyncpg"}


@pytest.fixture(params=[databases.SQLITE, databases.newest()])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with databases.opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
def app(database: Database) -> Iterator[Towline]:
    app = Towline(database.url)

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    yield app
    app.close()


def enqueue(app: Towline, on: object) -> None:
    app.enqueue_many([app.registry["add"].call(1, 2)], on=on)


def test_E2_a_scoped_session_is_the_session_of_this_thread(
    app: Towline, database: Database
) -> None:
    driver = "" if database.engine == "sqlite" else "psycopg"
    engine = sqlalchemy.create_engine(url_for(database, driver))
    registry = scoped_session(sessionmaker(engine))
    enqueue(app, registry)
    assert len(app.jobs()) == 0
    registry.commit()
    assert len(app.jobs()) == 1
    enqueue(app, registry)
    registry.rollback()
    registry.remove()
    assert len(app.jobs()) == 1
    engine.dispose()


def test_E2_an_async_scoped_session_and_what_runs_inside_run_sync(
    app: Towline, database: Database
) -> None:
    """Inside `run_sync` the blocking face works on an awaiting driver."""

    async def work() -> None:
        engine = create_async_engine(url_for(database, AWAITED[database.engine]))
        registry = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        call = app.registry["add"].call(1, 2)
        await app.aenqueue_many([call], on=registry)
        await registry.commit()
        await registry.remove()
        async with AsyncSession(engine) as session:
            await session.run_sync(lambda blocking: enqueue(app, blocking))
            assert len(await app.ajobs()) == 1
            await session.commit()
            assert len(await app.ajobs()) == 2
            await session.run_sync(lambda blocking: enqueue(app, blocking))
            await session.rollback()
        assert len(await app.ajobs()) == 2
        await engine.dispose()

    asyncio.run(work())


def test_E1_a_nested_session_that_is_rolled_back_takes_its_jobs_along(
    app: Towline, database: Database
) -> None:
    """A savepoint of SQLAlchemy's, released or not, while the outer transaction commits."""
    driver = "" if database.engine == "sqlite" else "psycopg2"
    engine = sqlalchemy.create_engine(url_for(database, driver))
    with Session(engine) as session:
        enqueue(app, session)
        nested = session.begin_nested()
        enqueue(app, session)
        nested.rollback()
        with session.begin_nested():
            enqueue(app, session)
        assert len(app.jobs()) == 0, "releasing a savepoint commits nothing"
        session.commit()
    assert [job.state for job in app.jobs()] == ["pending"] * 2
    engine.dispose()


def test_E3_a_session_without_a_bind_says_what_to_do(app: Towline) -> None:
    with Session() as session, pytest.raises(UnsupportedConnection, match=r"session\.connection"):
        enqueue(app, session)


class Homemade:
    """Somebody's own connection."""


@pytest.mark.parametrize("raw", [Homemade(), "postgresql://host/db", 5])
def test_E3_what_cannot_be_used_is_named_with_what_can(app: Towline, raw: object) -> None:
    with pytest.raises(UnsupportedConnection) as caught:
        enqueue(app, raw)
    text = str(caught.value)
    assert type(raw).__qualname__ in text
    for word in ("AsyncSession", "Django", "Connection"):
        assert word in text


@pytest.mark.parametrize("make", [AsyncSession, lambda engine: engine.connect()])
def test_E2_blocking_on_an_awaiting_session_names_the_twin(
    app: Towline, database: Database, make: Callable[[Any], Any]
) -> None:
    engine = create_async_engine(url_for(database, AWAITED[database.engine]))
    with pytest.raises(UnsupportedConnection, match=r"sqlalchemy\.Async\w+ must be awaited"):
        enqueue(app, make(engine))


DJANGO = """
import sys
sys.modules["psycopg"] = None  # so that Django takes psycopg2
import django
from django.conf import settings
settings.configure(DATABASES={"default": %r})
django.setup()
from django.db import connection, transaction
connection.ensure_connection()
del sys.modules["psycopg"]
assert type(connection.connection).__module__.startswith("psycopg2"), connection.connection
from towline import Towline
app = Towline(%r)
@app.task
def add(a: int, b: int) -> int: return a + b
with transaction.atomic():
    add.using(on=connection).enqueue(1, 2)
    assert len(app.jobs()) == 0
    assert len(app.jobs(on=connection)) == 1
assert len(app.jobs()) == 1
try:
    with transaction.atomic():
        add.using(on=connection).enqueue(1, 2)
        1 / 0
except ZeroDivisionError:
    pass
assert len(app.jobs()) == 1
add.using(on=connection).enqueue(1, 2)
assert len(app.jobs()) == 2
connection.close()
app.close()
"""


def test_E2_django_on_psycopg2(tmp_path: Path) -> None:
    """Which driver Django takes is decided once in a process."""
    with databases.opened(databases.newest(), tmp_path) as database:
        parts = sqlalchemy.engine.make_url(database.url)
        place = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.database,
            "USER": parts.username,
            "HOST": parts.query.get("host", parts.host),
            "PORT": parts.query.get("port", parts.port),
        }
        done = subprocess.run(
            [sys.executable, "-c", DJANGO % (place, database.url)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_E2_a_session_that_blocks_needs_no_greenlet(tmp_path: Path) -> None:
    """SQLAlchemy is installed without it; only what awaits needs it."""
    program = f"""
import sys
sys.modules["greenlet"] = None
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from towline import Towline

app = Towline("sqlite:///{tmp_path}/app.db")
app.migrate()

@app.task
def work() -> None: ...

engine = sqlalchemy.create_engine("sqlite:///{tmp_path}/app.db")
with Session(engine) as session:
    work.using(on=session).enqueue()
    session.commit()
scoped = scoped_session(sessionmaker(engine))
work.using(on=scoped).enqueue()
scoped.rollback()
with engine.begin() as connection:
    work.using(on=connection).enqueue()
print(len(app.jobs()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "2\n", done.stderr
