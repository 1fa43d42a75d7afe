"""Heat maps: which jobs are in which cell."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from towline.app.rollups import BOUNDS, EndedJobs, Times
from towline.dashboard.heat import ROWS, heat_data
from towline.dashboard.periods import Period
from towline.dashboard.words import fifths, percent
from towline.model import Outcome

NOW = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
NONE = Times(0, (0,) * 8)


def ended(at: datetime, *histogram: int) -> EndedJobs:
    times = Times(0, histogram)
    return EndedJobs(at, "q", "a", Outcome.COMPLETED, sum(histogram), times, NONE)


def test_a_long_time_has_columns_of_several_steps() -> None:
    """R2: 6 hours are 360 minutes; jobs of 6 of them are in one column."""
    period = Period("6h", "minute", NOW - timedelta(hours=6), NOW)
    first = period.since.replace(second=0)
    steps = period.steps([
        ended(first, 1, 0, 0, 0, 0, 0, 0, 0),
        ended(first + timedelta(minutes=5), 1, 0, 0, 0, 0, 0, 0, 0),
        ended(first + timedelta(minutes=6), 0, 1, 0, 0, 0, 0, 0, 2),
        ended(first + timedelta(minutes=6), 0, 0, 0, 0, 0, 0, 0, 1),
    ])  # fmt: skip
    assert (steps[0].at, steps[-1].at) == (first, NOW.replace(second=0))
    assert len(steps) == 361
    found = heat_data(steps, lambda jobs: jobs.run)
    assert found["columns"] == 61
    cells = [(cell["column"], cell["row"], cell["jobs"], cell["share"]) for cell in found["cells"]]
    assert cells == [(0, 0, 2, 1.0), (1, 1, 1, 0.25), (1, 7, 3, 0.75)]
    assert heat_data(steps, lambda jobs: jobs.wait)["cells"] == []


def test_every_row_has_its_words() -> None:
    assert len(ROWS) == len(BOUNDS) + 1
    assert (ROWS[0], ROWS[3], ROWS[-1]) == ("below 1 ms", "below 1 s", "1000 s and more")


@pytest.mark.parametrize(
    ("share", "fifth", "words"),
    [(0.0001, 1, "< 0.1 %"), (0.2, 1, "20.0 %"), (0.21, 2, "21.0 %"), (1, 5, "100 %")],
)
def test_a_share_is_one_of_five_colours(share: float, fifth: int, words: str) -> None:
    assert (fifths(share), percent(share)) == (fifth, words)
