"""L7: workers of two releases on one queue."""

from __future__ import annotations

from collections.abc import Callable

from tests.worker.gate import LIMIT, until
from towline import Towline


def test_a_parked_job_starts_beside_a_worker_that_does_not_know_it(
    app: Towline, make_app: Callable[..., Towline]
) -> None:
    """L7: a rolling upgrade. The new worker unparks once at its begin, the old one claims and parks
    them again, and the next unparking is a third of a lease later, with the same odds."""
    other = make_app()

    @other.task
    def unknown(number: int) -> int:
        return number

    @app.task
    def known() -> str:
        return "went on"

    with app.worker():
        jobs = [unknown.enqueue(number) for number in range(20)]
        until(lambda: all(job.refresh().reason for job in jobs))
        with other.worker(concurrency=1, prefetch=0):
            assert [job.result(LIMIT) for job in jobs] == list(range(20))
