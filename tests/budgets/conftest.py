"""Each budget is counted on SQLite and on the newest PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import database as databases
from tests.database import Database
from tests.furnished import database, url
from towline import Towline

__all__ = ["database", "url"]  # fixtures


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        names = [databases.SQLITE, databases.newest()]
        if "sqlite" in metafunc.fixturenames:
            names = names[:1]
        metafunc.parametrize("database", names, indirect=True)


@pytest.fixture
def app(make_app: Callable[..., Towline]) -> Towline:
    """An app on the real clock; the tables are there."""
    return make_app()


@pytest.fixture
def sqlite(database: Database) -> Database:
    """Only SQLite."""
    return database
