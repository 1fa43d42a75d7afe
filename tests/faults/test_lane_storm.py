"""G1, G2, G3, G4: a storm in lanes, with kills, on both engines; with the backstop off."""

from __future__ import annotations

import pytest

from tests.faults.fresh import Place
from tests.faults.lane_storm import storm
from tests.speed import by_speed, seed


@pytest.mark.each_engine
@pytest.mark.timeout(300)
def test_G1_G2_G3_a_storm_runs_nothing_above_a_limit_and_leaves_no_lane_asleep(
    place: Place,
) -> None:
    """`python -m tests.faults.lane_storm` does it for as long as one likes."""
    found = storm(place, workers=by_speed(3, 8), seconds=by_speed(2.0, 60.0), seed=seed(1))
    assert found.findings == []
    assert found.figures["snapshots"]
    assert found.figures["attempts"]
