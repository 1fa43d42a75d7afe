"""An app with a few tasks and jobs of each kind, on an engine; on each where it says so, or in a
proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest

from tests import database as databases
from tests.agent.client import Visitor
from tests.database import Database
from tests.furnished import database
from tests.speed import engines_of
from towline import Secret, Towline, agent

__all__ = ["database"]  # a fixture

ALL = ("enqueue", "retry", "cancel", "run", "pause")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        names = engines_of(metafunc, [databases.SQLITE, databases.newest()])
        metafunc.parametrize("database", names, indirect=True)


@pytest.fixture
def app(database: Database) -> Iterator[Towline]:
    app = Towline(database.url)

    @app.task
    def add(a: int, b: int = 2) -> int:
        """Adds two numbers."""
        return a + b

    @app.task(max_attempts=1)
    def bad(text: str, password: Annotated[str, Secret] = "") -> None:
        """Fails always."""
        raise ValueError(f"{text} for {password}")

    @app.task(lane="tenant", queue="mail")
    def send(tenant: str) -> None: ...

    yield app
    app.close()


Visit = Callable[..., Visitor]


@pytest.fixture
def visit(app: Towline) -> Visit:
    """A visitor of a server with these rules; everything is allowed unless they say otherwise."""

    def make(
        mode: str = "auto", name: str = "tester", answers: Any = None, **rules: Any
    ) -> Visitor:
        server = agent.server(app, **{"allow": ALL, **rules})
        return Visitor(server, mode, name, answers)

    return make


def stored(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table of ours."""
    if database.engine == databases.SQLITE:
        find = "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'towline_%'"
    else:
        find = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'towline_%'"
    tables = sorted(name for (name,) in database.rows(find))
    return {
        table: sorted(database.rows(f"SELECT * FROM {table}"), key=repr)  # a name of our schema
        for table in tables
    }
