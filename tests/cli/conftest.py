"""A shop with a fresh database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import database as databases
from tests.cli.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """On a SQLite file."""
    with databases.opened(databases.SQLITE, tmp_path) as database:
        shop = Shop(tmp_path, database.url)
        yield shop
        shop.close()


@pytest.fixture(params=[databases.SQLITE, databases.newest()])
def any_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """On each engine."""
    with databases.opened(request.param, tmp_path) as database:
        shop = Shop(tmp_path, database.url)
        yield shop
        shop.close()
