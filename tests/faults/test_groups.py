"""A group's last job runs once, after all, whatever befalls its members."""

from __future__ import annotations

import pytest

from tests.faults.fresh import Place
from tests.faults.groups import storm
from tests.speed import by_speed, seed


@pytest.mark.timeout(300)
@pytest.mark.each_engine
def test_F1_the_last_job_of_a_group_runs_once_in_a_storm(place: Place) -> None:
    """`python -m tests.faults.groups` has 2,000 members and ten kills."""
    members, kills = by_speed((200, 2), (1000, 8))
    assert storm(place, members, kills, seed(3)) == []
