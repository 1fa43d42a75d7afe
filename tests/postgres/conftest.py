"""A database on the newest PostgreSQL server, in a proof on each. A test asks for `url` or `app`;
`on_newest` narrows it. That the SQL is right on the oldest is what tests/conformance says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import database as databases
from tests import servers
from tests.database import Database
from tests.postgres.steps import Steps, know_steps
from tests.speed import by_speed
from towline import Towline
from towline.task import Task

# For what does not depend on the server's version and takes long.
on_newest = pytest.mark.parametrize("server", servers.servers()[-1:], indirect=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "server" in metafunc.fixturenames and "server" not in marked:
        found = servers.servers()
        metafunc.parametrize("server", by_speed(found[-1:], found), indirect=True)


@pytest.fixture
def server(request: pytest.FixtureRequest) -> servers.Server:
    """One of the servers."""
    return servers.server(request.param)


@pytest.fixture
def database(server: servers.Server, tmp_path: Path) -> Iterator[Database]:
    """A fresh database with our tables and one of the application's own, `mine`."""
    with databases.opened(server.name, tmp_path) as database:
        yield database


@pytest.fixture
def empty(server: servers.Server) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    with server.database() as url:
        yield url


@pytest.fixture
def url(database: Database) -> str:
    return database.url


@pytest.fixture
def connect(url: str) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    """Open connections of an application's own; all are closed at the end."""
    opened: list[psycopg.Connection[Any]] = []

    def connect(url_: str = url, **settings: Any) -> psycopg.Connection[Any]:
        opened.append(psycopg.connect(url_, **settings))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


def add(number: int) -> int:
    return number


@pytest.fixture
def task(app: Towline) -> Task[[int], int]:
    return app.task(add)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[Steps], None]:
    return lambda steps: know_steps(steps, monkeypatch.setattr)


@pytest.fixture
def eye(connect: Callable[..., psycopg.Connection[Any]]) -> Callable[..., list[tuple[Any, ...]]]:
    """Plain SQL beside the library, on a connection that holds nothing."""
    connection = connect(autocommit=True)

    def look(text: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = connection.execute(text.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    return look
