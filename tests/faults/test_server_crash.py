"""The server crashes while everybody works: what was acknowledged is there, nothing is twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers
from tests.faults.server_crash import crash_again_and_again


@pytest.mark.timeout(300)
def test_P6_L1_L3_a_crash_of_the_server_loses_nothing_and_gives_no_attempt_out_twice(
    tmp_path: Path,
) -> None:
    """`python -m tests.faults.server_crash` does it 20 times."""
    result = crash_again_and_again(tmp_path, servers.startable()[-1], crashes=2, processes=3)
    assert result.findings == []
    assert result.figures["crashes"] == 2
    worked = ("acknowledged jobs", "acknowledged endings", "attempts given out")
    assert min(result.figures[name] for name in worked) > 0
