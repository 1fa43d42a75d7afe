"""A shop with a fresh database for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import database as databases
from tests.cli.shop import Shop
from tests.speed import engines_of


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """On a SQLite file."""
    with databases.opened(databases.SQLITE, tmp_path) as database:
        shop = Shop(tmp_path, database.url)
        yield shop
        shop.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "any_shop" in metafunc.fixturenames:
        names = engines_of(metafunc, [databases.SQLITE, databases.newest()])
        metafunc.parametrize("any_shop", names, indirect=True)


@pytest.fixture
def any_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """On an engine; on each where it says so, or in a proof."""
    with databases.opened(request.param, tmp_path) as database:
        shop = Shop(tmp_path, database.url)
        yield shop
        shop.close()
