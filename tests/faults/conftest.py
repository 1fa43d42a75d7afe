"""Every proof runs small here, on SQLite or on the newest PostgreSQL; its own command runs it in
full size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fresh import Place, places
from tests.speed import engines_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" in metafunc.fixturenames and "place" not in vars(metafunc.module):
        names = engines_of(metafunc, ["sqlite", "postgres"])
        metafunc.parametrize("place", names, indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A fresh database, and a folder for the event log."""
    with places(request.param, tmp_path) as place:
        yield place
