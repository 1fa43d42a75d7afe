"""Finding A21: a time at the end of the calendar is refused when said, and can always be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from towline import Tasks
from towline.errors import InvalidSetting
from towline.times import to_datetime, to_micros

WEST, EAST = timezone(timedelta(hours=-23, minutes=-59)), timezone(timedelta(hours=23, minutes=59))


@pytest.mark.parametrize(
    "at",
    [
        datetime.max.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=WEST),
        datetime.min.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=EAST),
    ],
)
def test_a_time_that_no_calendar_shows_everywhere_is_refused(at: datetime) -> None:
    task = Tasks().task(name="add")(lambda: None)
    with pytest.raises(InvalidSetting, match="at= is beyond what a calendar can show"):
        task.using(at=at)


@pytest.mark.parametrize(
    "micros", [2**63 - 1, -(2**63), 10**30, -(10**30), to_micros(datetime.max.replace(tzinfo=WEST))]
)
def test_what_is_stored_beyond_it_is_read_as_its_end(micros: int) -> None:
    read = to_datetime(micros)
    for zone in (WEST, UTC, EAST):
        assert read.astimezone(zone).year == (9999 if micros > 0 else 1)


@pytest.mark.parametrize("year", [2, 1970, 2026, 9998])
def test_other_times_are_read_as_they_were_said(year: int) -> None:
    at: Any = datetime(year, 5, 6, 7, 8, 9, 10, tzinfo=UTC)
    assert to_datetime(to_micros(at)) == at
