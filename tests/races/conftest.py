"""Every race runs on SQLite and on the newest PostgreSQL, a costly one on the latter, where more
can meet; in a proof on every server, a costly one on SQLite and the newest. What depends on a
server's version, the interleaver tries on the oldest, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import database as databases
from tests.furnished import database, url
from tests.races.overlap import close_all
from tests.speed import PROOF, by_speed

__all__ = ["database", "url"]  # fixtures


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marked = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "database" in metafunc.fixturenames and "database" not in marked:
        names = [databases.SQLITE, databases.newest()]
        if "costly" in metafunc.fixturenames:
            names = by_speed(names[1:], names)
        elif PROOF:
            names = databases.names()
        metafunc.parametrize("database", names, indirect=True)


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def costly() -> None:
    """Asked for by a race that takes long."""
