"""The server crashes while everybody works: what was acknowledged is there, nothing is twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers
from tests.faults.server_crash import crash_again_and_again
from tests.speed import by_speed, seed


@pytest.mark.timeout(300)
def test_P6_L1_L3_a_crash_of_the_server_loses_nothing_and_gives_no_attempt_out_twice(
    tmp_path: Path,
) -> None:
    """`python -m tests.faults.server_crash` does it 20 times."""
    crashes = by_speed(1, 5)
    result = crash_again_and_again(
        tmp_path, servers.startable()[-1], crashes=crashes, processes=3, seed=seed(0)
    )
    assert result.findings == []
    assert result.figures["crashes"] == crashes
    worked = ("acknowledged jobs", "acknowledged endings", "attempts given out")
    assert min(result.figures[name] for name in worked) > 0
