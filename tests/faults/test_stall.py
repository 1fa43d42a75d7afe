"""Whoever stalls for three leases loses its own work, and costs no other job its lease."""

from __future__ import annotations

import pytest

from tests.faults.fresh import Place
from tests.faults.stall import block, stop_and_continue
from tests.speed import by_speed


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", by_speed(["stopped"], ["stopped", "gil"]))
def test_L2_L3_of_a_worker_that_stood_still_nothing_is_accepted(place: Place, how: str) -> None:
    """Stopped from outside, or by one of its threads; jobs of another worker keep their leases."""
    audit = stop_and_continue(place, how)
    assert audit.findings == []
    assert audit.figures["of its attempts accepted"] == 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", by_speed(["loop"], ["thread", "loop", "gil"]))
def test_L2_a_handler_that_blocks_costs_no_lease(place: Place, kind: str) -> None:
    audit = block(place, kind)
    assert audit.findings == []
    assert audit.figures["leases lost"] == 0
