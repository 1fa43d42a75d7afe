"""A worker frozen inside a transaction is taken over (L4, finding P4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.fresh import places
from tests.faults.frozen import freeze
from tests.speed import by_speed


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", by_speed(["settle_jobs"], ["settle_jobs", "claim_pending"]))
def test_L4_a_worker_frozen_in_a_turn_keeps_nothing(tmp_path: Path, point: str) -> None:
    with places("postgres", tmp_path) as place:
        assert freeze(place.url, tmp_path, point) is not None
