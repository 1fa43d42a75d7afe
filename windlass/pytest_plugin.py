"""Fixtures for pytest; installed with the package, and nothing is imported until one is used.

`windlass_app` is the app that the setting `windlass_app = "module:app"` names, on a throw-away
database and on `windlass_clock`; a new one where nothing is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .app import Windlass
    from .testing import Clock


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("windlass_app", "the app that the fixture windlass_app gives, as module:app")


@pytest.fixture
def windlass_clock() -> Clock:
    """The clock of `windlass_app`; it stands still until the test moves it."""
    from .testing import Clock

    return Clock()


@pytest.fixture
def windlass_app(pytestconfig: pytest.Config, windlass_clock: Clock) -> Iterator[Windlass]:
    """The app under test on an empty throw-away database."""
    from pkgutil import resolve_name

    from .app import Windlass
    from .testing import isolated

    place = str(pytestconfig.getini("windlass_app") or "")
    app = resolve_name(place) if place else None
    if app is not None and not isinstance(app, Windlass):
        raise pytest.UsageError(f"windlass_app = {place!r} is {app!r}, which is no Windlass app")
    with isolated(app, clock=windlass_clock) as app:
        yield app


@pytest.fixture
def windlass_drain(windlass_app: Windlass) -> Callable[..., int]:
    """`drain(windlass_app)`, with the same arguments."""
    from functools import partial

    from .testing import drain

    return partial(drain, windlass_app)
