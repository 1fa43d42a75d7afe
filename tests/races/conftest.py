"""Every race runs on SQLite and on the newest PostgreSQL; in a proof on every server, unless it is
costly. What depends on a server's version, the interleaver tries on the oldest, too."""

from __future__ import annotations

import pytest

from tests import database as databases
from tests.furnished import database, url
from tests.speed import PROOF

__all__ = ["database", "url"]  # fixtures


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
