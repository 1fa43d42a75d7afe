"""What the database knows of all workers, as a collector of prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...store.columns import BUCKETS
from ...times import MICRO
from ..cluster import Cluster
from . import catalogue
from .families import Values, described, histogram, numbers

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from ...app import Towline

BOUNDS = tuple(bound / MICRO for bound in BUCKETS)


class ClusterMetrics:
    """One look for all scrapes; when there is none, only that is said."""

    def __init__(self, app: Towline) -> None:
        self.cluster = Cluster(app)

    def describe(self) -> list[Family]:
        return described(catalogue.CLUSTER)

    def collect(self) -> Iterator[Family]:
        look = self.cluster.look()
        yield numbers(catalogue.UP, {(): int(look is not None)})
        if look is None:
            return
        yield numbers(catalogue.QUEUE_JOBS, look.jobs)
        yield numbers(catalogue.QUEUE_AGE, _by_queue(look.ages))
        yield numbers(catalogue.QUEUE_PAUSED, _by_queue(look.paused))
        yield numbers(catalogue.WORKERS, {(): look.workers})
        yield numbers(catalogue.ENDED, look.sums.ended)
        rows = ((place, row[:-1], row[-1] / MICRO) for place, row in look.sums.run.items())
        yield histogram(catalogue.JOB_RUN, BOUNDS, rows)


def _by_queue(found: Mapping[str, float]) -> dict[Values, float]:
    return {(queue,): number for queue, number in found.items()}
