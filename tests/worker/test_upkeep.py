"""R4: what a worker does for all between its turns must be quick: renewals wait for it."""

from __future__ import annotations

import pytest

from tests.database import Database
from towline import Towline
from towline.upkeep import Upkeep


def test_vacuuming_is_left_to_the_server(
    app: Towline, postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VACUUM of large tables may take longer than a lease."""
    monkeypatch.setattr(app.engine, "vacuum", lambda pages: pytest.fail("it waits for a VACUUM"))
    Upkeep(app, 30)._prune()


def test_free_pages_of_a_file_are_given_back_some_at_a_time(
    app: Towline, sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(app.engine, "vacuum", asked.append)
    Upkeep(app, 30)._prune()
    assert asked == [1000]
