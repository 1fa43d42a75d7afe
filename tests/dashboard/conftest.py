"""Cases run against a dashboard behind a real server, on an engine; on each where it says so, or in
a proof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import database as databases
from tests.dashboard.serving import served
from tests.speed import engines_of
from towline import Towline, dashboard


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    here = metafunc.module.__dict__.get("app")  # a file may have one of its own
    if "app" in metafunc.fixturenames and "app" not in named and here is None:
        names = engines_of(metafunc, [databases.SQLITE, databases.newest()])
        metafunc.parametrize("app", names, indirect=True)


@pytest.fixture
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
