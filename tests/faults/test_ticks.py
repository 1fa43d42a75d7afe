"""N1: one job for each tick, whoever dies while it is fired, and whenever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import servers
from tests.faults.fresh import Place
from tests.faults.ticks import die_at_every_statement, restartable, storm
from tests.speed import by_speed, seed


@pytest.mark.each_engine
@pytest.mark.timeout(300)
def test_N1_a_death_at_any_statement_of_fire_leaves_a_tick_whole(place: Place) -> None:
    found = die_at_every_statement(place, by_speed(("after",), ("before", "after")))
    assert found.twice == []
    assert found.lost == []
    assert found.kills >= 8


@pytest.mark.timeout(300)
def test_N1_six_workers_that_are_killed_fire_each_tick_once(place: Place) -> None:
    """`python -m tests.faults.ticks` does it for longer."""
    ticks, kills = by_speed((40, 3), (200, 12))
    found = storm(place, ticks=ticks, kills=kills, restart=None, seed=seed(0))
    assert found.twice == []
    assert found.lost == []
    assert (found.kills, found.came >= ticks) == (kills, True)


@pytest.mark.timeout(300)
def test_N1_a_restart_of_the_server_takes_no_tick(tmp_path: Path) -> None:
    ticks, kills = by_speed((40, 2), (200, 8))
    with restartable(tmp_path, servers.startable()[-1]) as (place, restart):
        found = storm(place, ticks=ticks, kills=kills, restart=restart, seed=seed(1))
    assert found.twice == []
    assert found.lost == []
    assert found.restarts == 1
