"""Fixtures for pytest; installed with the package, and nothing is imported until one is used.

`towline_app` is the app that the setting `towline_app = "module:app"` names, on a throw-away
database and on `towline_clock`; a new one where nothing is named. The setting `towline_url` names a
PostgreSQL database, `$NAME` in it is read from the environment: each test has a schema of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .app import Towline
    from .testing import Clock
    from .testing.recording import Recording
    from .worker import Worker


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("towline_app", "the app that the fixture towline_app gives, as module:app")
    parser.addini("towline_url", "a PostgreSQL database in which each test has a schema")


@pytest.fixture
def towline_clock() -> Clock:
    """The clock of `towline_app`; it stands still until the test moves it."""
    from .testing import Clock

    return Clock()


@pytest.fixture
def towline_app(pytestconfig: pytest.Config, towline_clock: Clock) -> Iterator[Towline]:
    """The app under test on an empty throw-away database."""
    from os.path import expandvars
    from pkgutil import resolve_name

    from .app import Towline
    from .testing import isolated

    place = str(pytestconfig.getini("towline_app") or "")
    app = resolve_name(place) if place else None
    if app is not None and not isinstance(app, Towline):
        raise pytest.UsageError(f"towline_app = {place!r} is {app!r}, which is no Towline app")
    url = expandvars(str(pytestconfig.getini("towline_url") or ""))
    with isolated(app, clock=towline_clock, url=url or None) as app:
        yield app


@pytest.fixture
def towline_drain(towline_app: Towline) -> Callable[..., int]:
    """`drain(towline_app)`, with the same arguments."""
    from functools import partial

    from .testing import drain

    return partial(drain, towline_app)


@pytest.fixture
def towline_adrain(towline_app: Towline) -> Callable[..., Awaitable[int]]:
    """`adrain(towline_app)`, with the same arguments, to be awaited."""
    from functools import partial

    from .testing import adrain

    return partial(adrain, towline_app)


@pytest.fixture
def towline_inline(towline_app: Towline) -> Iterator[Towline]:
    """`towline_app`, which runs each job as soon as it is enqueued."""
    from .testing import inline

    with inline(towline_app) as app:
        yield app


@pytest.fixture
def towline_worker(towline_app: Towline) -> Iterator[Worker]:
    """A running worker, for timeouts, cancellation and processes; with it the time is the real
    one, not that of `towline_clock`."""
    from .testing import real_worker

    with real_worker(towline_app) as worker:
        yield worker


@pytest.fixture
def towline_events(towline_app: Towline) -> Iterator[Recording]:
    """The events of `towline_app`: `towline_events("attempt.ended")` gives them."""
    from .testing import recorded

    with recorded(towline_app) as events:
        yield events
