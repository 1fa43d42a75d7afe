"""Every race runs on SQLite and on the newest PostgreSQL; in a proof on every server, unless it is
costly. What depends on a server's version, the interleaver tries on the oldest, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import database as databases
from tests.database import Database
from tests.speed import PROOF


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "database" in metafunc.fixturenames and "database" not in marked:
        names = [databases.SQLITE, databases.newest()]
        if PROOF and "costly" not in metafunc.fixturenames:
            names = databases.names()
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
