"""An app on SQLite or on the newest PostgreSQL, on both where that differs (`each_engine`), whose
spans and metrics are collected in memory by OpenTelemetry's own SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests import database as databases
from tests.furnished import database, url
from tests.speed import engines_of
from tests.telemetry.collected import Collected
from towline import Towline

__all__ = ["database", "url"]  # fixtures


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        names = engines_of(metafunc, [databases.SQLITE, databases.newest()])
        metafunc.parametrize("database", names, indirect=True)


@pytest.fixture
def app(make_app: Callable[..., Towline]) -> Towline:
    """An app on the real clock; the tables are there."""
    return make_app()


@pytest.fixture
def collected() -> Iterator[Collected]:
    with Collected() as collected:
        yield collected
