"""Kills at random while jobs run: nothing is lost, and no ending of a dead worker is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers
from tests.faults.fresh import Place
from tests.faults.kills import kill_at_random
from tests.faults.server_restarts import restart_again_and_again
from tests.speed import by_speed, seed


@pytest.mark.timeout(300)
def test_L1_L3_L4_kills_of_workers_and_their_processes_lose_nothing(place: Place) -> None:
    """`python -m tests.faults.kills` kills 200 times. How many endings a worker had not written
    yet when it was killed is not judged here."""
    jobs, kills = by_speed((160, 3), (800, 12))
    audit = kill_at_random(place, jobs=jobs, kills=kills, again=jobs, seed=seed(0))
    assert audit.findings == []
    assert audit.figures["kills"] == kills
    assert audit.figures["jobs"] == jobs


@pytest.mark.timeout(300)
def test_P6_L4_workers_outlive_restarts_of_the_server(tmp_path: Path) -> None:
    """`python -m tests.faults.server_restarts` does it 20 times."""
    audit = restart_again_and_again(tmp_path, servers.startable()[-1], by_speed(1, 5), seed(0))
    assert audit.findings == []
    assert audit.figures["acknowledged"] > 0
