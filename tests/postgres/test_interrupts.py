"""Finding A3 on PostgreSQL: an exception that arrives anywhere in a call leaves nothing stuck."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.faults.fresh import places
from tests.faults.interrupts import Alarm, Interrupt, at
from tests.speed import by_speed

# Where an interrupt would leave something behind: many bytecodes of these are tried.
INNER = ("engine.py", "pool.py", "own_connection.py", "transaction.py")
SPREAD = by_speed(6, 40)  # further ones, anywhere


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("act", "kind"), [("enqueue", Interrupt), ("enqueue", Alarm), ("read", Interrupt)]
)
def test_A3_after_an_interrupt_anywhere_everybody_can_write_and_read_at_once(
    tmp_path: Path, act: str, kind: type[BaseException]
) -> None:
    """`python -m tests.faults.interrupts --engine postgres` does it at every bytecode."""
    with places("postgres", tmp_path) as place, at(place) as interrupts:
        files = [os.path.basename(file) for file in interrupts.count(act)]
        inner = [number for number, file in enumerate(files) if file in INNER]
        spread = random.Random(7).sample(range(len(files)), SPREAD)
        interrupts.only(act, kind, inner[:: by_speed(18, 3)] + spread)
        assert interrupts.audit.findings == []
