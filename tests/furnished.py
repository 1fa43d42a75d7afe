"""The fixtures of folders whose tests run on several databases: a fresh one of the name asked for.

A conftest.py there imports them, and says by `pytest_generate_tests` which a test gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import database as databases
from tests.database import Database


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh database with our tables and one of the application's own, `mine (id)`."""
    with databases.opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
def url(database: Database) -> str:
    return database.url
