"""Every proof runs small here, on SQLite and on the newest PostgreSQL; its own command runs it in
full size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.fresh import Place, places


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A fresh database, and a folder for the event log."""
    with places(request.param, tmp_path) as place:
        yield place
