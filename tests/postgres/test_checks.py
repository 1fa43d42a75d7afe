"""The PostgreSQL part of `towline doctor`, from what a server may answer."""

from __future__ import annotations

import time

import pytest

from towline.engine import NOTE, OK, PROBLEM
from towline.operation import Row
from towline.postgres.checks import examine
from towline.times import MICRO

WELL = (160_003, "on", 0, 3)


def found(row: Row, *, ahead: float = 0.0) -> dict[str, tuple[str, str]]:
    """Level and text of each finding, by what it is about."""
    now = round((time.time() + ahead) * MICRO)
    return {each.about: (each.level, each.text) for each in examine(row, now)}


def test_all_is_well() -> None:
    assert found(WELL) == {
        "server": (OK, "PostgreSQL 16.3"),
        "autovacuum": (OK, "on"),
        "clock": (OK, "this host and the server agree"),
    }


@pytest.mark.parametrize(
    ("row", "about", "level", "text"),
    [
        ((120_011, "on", 0, 3), "server", PROBLEM, "PostgreSQL 12.11 is too old"),
        ((160_003, "on", 1, 3), "server", PROBLEM, "PostgreSQL 16.3, a read-only standby"),
        ((160_003, "off", 0, 3), "autovacuum", PROBLEM, "off: dead rows pile up"),
        ((160_003, "on", 0, 3725), "transactions", NOTE, "one has been open for 1 h 2 min:"),
    ],
)
def test_what_is_wrong_with_a_server(row: Row, about: str, level: str, text: str) -> None:
    assert found(row)[about][0] == level
    assert found(row)[about][1].startswith(text)


def test_clocks_that_differ() -> None:
    level, text = found(WELL, ahead=-90)["clock"]
    assert level == NOTE
    assert text.startswith("this host's clock differs from the server's by 1 min 30 s;")
