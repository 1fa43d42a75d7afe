"""B2 at its worst: every job's blockers end at the same moment, in different hands."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.database import Database
from tests.races.fan_in import Finishers
from tests.speed import by_speed

JOBS = by_speed(20, 80)


@pytest.mark.usefixtures("costly")
def test_B2_B4_ten_finishers_end_three_blockers_of_each_job_none_is_stuck_or_early(
    database: Database,
) -> None:
    """`python -m tests.races.fan_in` does it with 200 jobs, 50 times."""
    with closing(Finishers(10)) as finishers:
        result = finishers.run(database.url, JOBS)
    assert result.clean, result
    assert result.hands > 1, "one finisher ran them all: it was no race"
