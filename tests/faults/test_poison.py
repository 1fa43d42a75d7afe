"""Poison jobs end as promised, and take no innocent job with them."""

from __future__ import annotations

import pytest

from tests.faults import tasks
from tests.faults.fresh import Place
from tests.faults.poison import POISON, poison_chunk, poison_processes, poison_threads
from tests.speed import by_speed


@pytest.mark.timeout(300)
def test_O6_O7_poison_in_process_slots_costs_its_own_attempts_only(place: Place) -> None:
    """`python -m tests.faults.poison` says at which rate other work goes on."""
    audit = poison_processes(place, by_speed(40, 400), list(POISON))
    assert audit.findings == []
    assert audit.figures["poison"] == len(POISON)


@pytest.mark.timeout(300)
def test_O11_one_segfault_in_a_thread_fails_one_job_of_200(place: Place) -> None:
    audit = poison_threads(place, 200)
    assert audit.findings == []
    assert audit.figures["failed"] == 1


@pytest.mark.timeout(300)
def test_O11_kills_among_quick_jobs_fail_alone(place: Place) -> None:
    """Finding A11: `python -m tests.faults.poison` has 4 and 20 of them among 2,000."""
    audit = poison_threads(place, 300, 2, pause=0.0, task=tasks.kills_its_worker)
    assert audit.findings == []
    assert audit.figures["failed"] == 2


@pytest.mark.timeout(300)
@pytest.mark.each_engine
def test_F8_an_item_that_segfaults_costs_the_others_of_its_chunk_one_attempt(place: Place) -> None:
    assert poison_chunk(place) == []
