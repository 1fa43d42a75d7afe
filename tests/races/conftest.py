"""Every race runs on SQLite and on every PostgreSQL server; a costly one only on the newest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import database as databases
from tests.database import Database


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "database" in metafunc.fixturenames and "database" not in marked:
        names = databases.names()
        if "costly" in metafunc.fixturenames:
            names = [databases.SQLITE, databases.newest()]
        metafunc.parametrize("database", names, indirect=True)


@pytest.fixture
def costly() -> None:
    """Asked for by a race that takes long: it spares the older servers."""


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh database with our tables and one of the application's own."""
    with databases.opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
def url(database: Database) -> str:
    return database.url
