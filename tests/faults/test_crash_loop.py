"""A process that dies before or after any statement leaves nothing lost and nothing twice."""

from __future__ import annotations

import pytest

from tests.faults.crash_acts import ACTS
from tests.faults.crash_loop import crash_everywhere
from tests.faults.fresh import Place
from tests.speed import by_speed

# A few of the points, each at both sides of its statement; the command has them all.
NAMES = ("enqueue in the caller's transaction", "finish: completed, with unblock")


@pytest.mark.timeout(300)
def test_L3_L4_O1_a_kill_at_any_statement_loses_nothing(place: Place) -> None:
    """`python -m tests.faults.crash_loop` kills at every statement of every operation."""
    loop = crash_everywhere(place, NAMES, step=by_speed(12, 2))
    assert loop.findings == []
    assert set(loop.points) == set(NAMES), "some act was never killed"
    assert min(loop.points.values()) >= 2, "an act is one statement at least, with two sides"


@pytest.mark.timeout(300)
def test_F4_a_kill_at_any_statement_leaves_all_of_a_fan_out_or_nothing(place: Place) -> None:
    """A child without its continuation would be judged as a job that nobody stored."""
    names = [name for name in ACTS if "children" in name]
    loop = crash_everywhere(place, names, step=by_speed(6, 1))
    assert loop.findings == []
    assert set(loop.points) == set(names)


def test_every_operation_that_must_survive_a_kill_has_an_act() -> None:
    wanted = (
        "enqueue",
        "claim",
        "renew",
        "finish",
        "cancel",
        "sweep",
        "promote",
        "prune",
        "migrate",
    )
    assert [word for word in wanted if not any(name.startswith(word) for name in ACTS)] == []
