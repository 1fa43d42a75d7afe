"""Fixtures for pytest; installed with the package, and nothing is imported until one is used.

`towline_app` is the app that the setting `towline_app = "module:app"` names, on a throw-away
database and on `towline_clock`; a new one where nothing is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .app import Towline
    from .testing import Clock


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("towline_app", "the app that the fixture towline_app gives, as module:app")


@pytest.fixture
def towline_clock() -> Clock:
    """The clock of `towline_app`; it stands still until the test moves it."""
    from .testing import Clock

    return Clock()


@pytest.fixture
def towline_app(pytestconfig: pytest.Config, towline_clock: Clock) -> Iterator[Towline]:
    """The app under test on an empty throw-away database."""
    from pkgutil import resolve_name

    from .app import Towline
    from .testing import isolated

    place = str(pytestconfig.getini("towline_app") or "")
    app = resolve_name(place) if place else None
    if app is not None and not isinstance(app, Towline):
        raise pytest.UsageError(f"towline_app = {place!r} is {app!r}, which is no Towline app")
    with isolated(app, clock=towline_clock) as app:
        yield app


@pytest.fixture
def towline_drain(towline_app: Towline) -> Callable[..., int]:
    """`drain(towline_app)`, with the same arguments."""
    from functools import partial

    from .testing import drain

    return partial(drain, towline_app)
