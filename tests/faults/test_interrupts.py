"""Finding A3: an exception that arrives anywhere in a call leaves nothing stuck."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults.fresh import Place, places
from tests.faults.interrupts import Alarm, Interrupt, at
from tests.speed import by_speed, seed

# Where an interrupt would leave something behind: many bytecodes of these are tried.
INNER = ("writer.py", "lock.py", "line.py", "kept.py", "instant.py", "engine.py")
SPREAD = by_speed(10, 100)  # further ones, anywhere


@pytest.fixture
def place(tmp_path: Path) -> Place:
    with places("sqlite", tmp_path) as place:
        return place


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", [Interrupt, Alarm])
@pytest.mark.parametrize("act", ["enqueue", "read", "wait", "beside"])
def test_A3_after_an_interrupt_anywhere_everybody_can_write_and_read_at_once(
    place: Place, act: str, kind: type[BaseException]
) -> None:
    """`python -m tests.faults.interrupts` does it at every bytecode, on either engine."""
    with at(place) as interrupts:
        files = [os.path.basename(file) for file in interrupts.count(act)]
        inner = [number for number, file in enumerate(files) if file in INNER]
        step = by_speed(4, 1) * (4 if act in ("enqueue", "read") else 12)
        chosen = inner[2 * (kind is Alarm) :: step]
        spread = random.Random(seed(7)).sample(range(len(files)), SPREAD)
        interrupts.only(act, kind, chosen + spread)
        assert interrupts.audit.findings == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(120)
def test_A3_signals_at_random_moments_leave_nothing_stuck(place: Place) -> None:
    with at(place) as interrupts:
        interrupts.random(by_speed(1.0, 5.0), Interrupt, seed=seed(3))
        assert interrupts.audit.findings == []
