"""Cases run on SQLite and on the newest server, against a dashboard behind a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import database as databases
from tests.dashboard.serving import served
from towline import Towline, dashboard


@pytest.fixture(params=[databases.SQLITE, databases.newest()])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Towline]:
    with databases.opened(request.param, tmp_path) as database:
        app = Towline(database.url)
        yield app
        app.close()


@pytest.fixture
def client(app: Towline) -> Iterator[httpx.Client]:
    """Who asks the dashboard from its own machine."""
    with served(dashboard.asgi(app)) as client:
        yield client
