"""SIGTERM: handlers end or are handed back, and nothing is counted against their jobs."""

from __future__ import annotations

import pytest

from tests.faults.fresh import Place
from tests.faults.shutdown import shut_down
from tests.speed import by_speed


@pytest.mark.timeout(300)
@pytest.mark.parametrize("long", by_speed([10], [0, 10]))
def test_W1_a_stop_finishes_or_hands_back_what_runs(place: Place, long: int) -> None:
    """`python -m tests.faults.shutdown` stops a worker with 50 running jobs."""
    audit = shut_down(place, 20, grace=60.0 if not long else 4.0, long=long)
    assert audit.findings == []
    assert audit.figures["finished"] + audit.figures["handed back"] == 20
    assert audit.figures["handed back"] == long
