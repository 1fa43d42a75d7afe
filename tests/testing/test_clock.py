"""A clock that stands still until the test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from towline import State, Towline
from towline.errors import InvalidSetting
from towline.testing import Clock, drain

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_it_starts_where_the_test_says_and_moves_by_hand() -> None:
    clock = Clock(NOON)
    assert clock.now == NOON
    clock.advance(1.5)
    clock.advance(timedelta(minutes=1))
    assert clock.now == NOON + timedelta(seconds=61.5)
    assert "2030-01-01T12:01:01.5" in repr(clock)


def test_it_starts_at_the_present_moment() -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    assert before < Clock().now <= datetime.now(UTC)


def test_time_does_not_go_back() -> None:
    clock = Clock(NOON)
    with pytest.raises(InvalidSetting, match="does not go back"):
        clock.advance(-1)
    clock.advance_to(0)
    assert clock.now == NOON


def test_a_start_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="time zone"):
        Clock(datetime(2030, 1, 1))  # noqa: DTZ001


def test_a_job_is_due_when_the_clock_says_so(app: Towline, hand: Clock) -> None:
    """S1"""

    @app.task
    def remind() -> None: ...

    job = remind.using(delay=60).enqueue()
    drain(app)
    assert job.refresh().state is State.SCHEDULED
    hand.advance(60)
    drain(app)
    assert job.refresh().state is State.COMPLETED
