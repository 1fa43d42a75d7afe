"""Workers of two releases, and jobs claimed ahead, in real processes; small here."""

from __future__ import annotations

import pytest

from tests.faults.fresh import Place
from tests.faults.two_releases import two_releases


@pytest.mark.timeout(300)
def test_S3_new_tasks_run_beside_an_old_worker(place: Place) -> None:
    """`python -m tests.faults.two_releases` prints how long 200 of them take. Each would wait for a
    third of the lease, and twenty of them for minutes."""
    assert len(two_releases(place, 20)) == 20
