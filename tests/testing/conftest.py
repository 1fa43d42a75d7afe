"""An app on a throw-away file, on a clock that the test moves: by the helpers under test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from towline import Towline
from towline.testing import Clock, isolated


@pytest.fixture
def hand() -> Clock:
    """The clock that these tests move."""
    return Clock()


@pytest.fixture
def app(hand: Clock) -> Iterator[Towline]:
    with isolated(clock=hand) as app:
        yield app
