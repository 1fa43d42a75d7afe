"""Findings A1 and A2: no crash when connections are closed while other threads use the app."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.storms import storm
from tests.speed import by_speed


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["forks", "closes", "ends"])
def test_A2_a_storm_crashes_nothing_and_loses_nothing(name: str, tmp_path: Path) -> None:
    """`python -m tests.faults.storms` does it for as long as one likes."""
    audit = storm(name, tmp_path, by_speed(1.0, 5.0))
    assert audit.findings == []
    assert audit.figures["acknowledged"]
