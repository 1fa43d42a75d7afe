"""A test runs on SQLite or on the newest PostgreSQL, on both in a proof or where the database is
part of what it is about (`each_engine`), with a worker in this process.

Handlers and tests meet at gates and events. What a worker only survives is a failure here: a test
that provokes it asks for `trouble`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator

import pytest

from tests import database as databases
from tests.database import Database
from tests.furnished import database, url
from tests.speed import engines_of
from towline import Towline

__all__ = ["database", "url"]  # fixtures


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        return  # a test of kinds of connections says itself which, on what
    if "postgres" in metafunc.fixturenames:
        metafunc.parametrize("database", [databases.newest()], indirect=True)
    elif "sqlite" in metafunc.fixturenames:
        metafunc.parametrize("database", [databases.SQLITE], indirect=True)
    elif "database" in metafunc.fixturenames:
        names = engines_of(metafunc, [databases.SQLITE, databases.newest()])
        metafunc.parametrize("database", names, indirect=True)


@pytest.fixture
def sqlite(database: Database) -> Database:
    """Only SQLite."""
    return database


@pytest.fixture
def postgres(database: Database) -> Database:
    """Only PostgreSQL."""
    return database


@pytest.fixture
def app(make_app: Callable[..., Towline]) -> Towline:
    """An app on the real clock; the tables are there."""
    return make_app()


@pytest.fixture
def trouble() -> list[logging.LogRecord]:
    """What the workers of this test complained about."""
    return []


class Complaints(logging.Handler):
    def __init__(self, kept: list[logging.LogRecord]) -> None:
        super().__init__(logging.WARNING)
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        self._kept.append(record)


@pytest.fixture(autouse=True)
def _no_surprise(
    request: pytest.FixtureRequest, trouble: list[logging.LogRecord]
) -> Iterator[None]:
    """A worker that met an error it does not know has a defect, though it went on (W3)."""
    logger = logging.getLogger("towline.worker")
    handler = Complaints(trouble)
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    if "trouble" not in inspect.signature(request.function).parameters:
        surprises = [r.getMessage() for r in trouble if r.exc_info or r.levelno >= logging.ERROR]
        assert not surprises
