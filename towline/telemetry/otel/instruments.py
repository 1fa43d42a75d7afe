"""The instruments of a process: made once for each meter provider, shared by its apps.

Counters are kept here and asked for when somebody collects them: to add to one costs a hundredth of
what OpenTelemetry takes for it. Histograms it must be told of each time.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

from ...version import VERSION
from . import conventions as words

if TYPE_CHECKING:
    from ...app import Towline
    from ..cluster import Cluster, Look

Labels = tuple[tuple[str, Any], ...]  # attributes of a number

SECONDS = (
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0,
    300.0, 1800.0, 3600.0,
)  # fmt: skip

SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"
REFUSED = "towline.attempts.refused"
LEASES_LOST = "towline.leases.lost"
DROPPED = "towline.events.dropped"
COUNTERS = {
    SENT: ("{message}", "Jobs that were stored here."),
    CONSUMED: ("{message}", "Attempts that were begun here."),
    REFUSED: ("{attempt}", "Ends that were refused: another had the job."),
    LEASES_LOST: ("{lease}", "Times a worker of this process lost its lease."),
    DROPPED: ("{event}", "Events that did not fit into the line."),
}


class Instruments:
    """What this process says to one meter provider."""

    def __init__(self, given: MeterProvider | None) -> None:
        meter = metrics.get_meter(words.SCOPE, VERSION, given, words.SCHEMA)
        self._meter = meter
        self.counts: dict[str, Counter[Labels]] = {name: Counter() for name in COUNTERS}
        for name in (LEASES_LOST, DROPPED):
            self.counts[name][()] = 0  # there from the start: a rate needs a first value
        self.apps: weakref.WeakSet[Towline] = weakref.WeakSet()
        self._clusters: weakref.WeakKeyDictionary[Towline, Cluster] = weakref.WeakKeyDictionary()
        self._has_cluster = False
        for name, (unit, text) in COUNTERS.items():
            meter.create_observable_counter(name, [self._reader(name)], unit, text)
        meter.create_observable_up_down_counter(
            "towline.worker.slots", [self._slots], "{slot}", "Slots of the workers of this process."
        )
        self.ran = self._histogram("messaging.process.duration", "How long handlers ran.")
        self.operated = self._histogram(
            "messaging.client.operation.duration", "How long operations took."
        )
        self.waited = self._histogram(
            "towline.job.wait.duration", "How long jobs could have run before they did."
        )

    def _histogram(self, name: str, text: str) -> metrics.Histogram:
        return self._meter.create_histogram(
            name, "s", text, explicit_bucket_boundaries_advisory=SECONDS
        )

    def count(self, name: str, labels: Labels, number: int = 1) -> None:
        self.counts[name][labels] += number

    # ---- asked for when somebody collects

    def _reader(self, name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        counts = self.counts[name]
        return lambda _: [observed(n, labels) for labels, n in counts.copy().items()]

    def _slots(self, _: CallbackOptions) -> list[Observation]:
        workers = [worker for app in list(self.apps) for worker in list(app.workers_here)]
        busy = sum(worker.busy for worker in workers)
        free = max(sum(worker.settings.concurrency for worker in workers) - busy, 0)
        return [
            observed(busy, ((words.STATE, "busy"),)),
            observed(free, ((words.STATE, "free"),)),
        ]

    # ---- of the database

    def look_at(self, app: Towline) -> None:
        """Say also what its database knows."""
        from ..cluster import Cluster

        self._clusters[app] = Cluster(app)
        if not self._has_cluster:
            self._has_cluster = True
            self._make_cluster()

    def forget(self, app: Towline) -> None:
        self.apps.discard(app)
        self._clusters.pop(app, None)

    def _make_cluster(self) -> None:
        meter, reads = self._meter, self._reads
        meter.create_observable_gauge(
            "towline.queue.jobs", [reads(_jobs)], "{job}", "Jobs there are."
        )
        meter.create_observable_gauge(
            "towline.queue.age", [reads(_ages)], "s", "Age of the oldest pending job."
        )
        meter.create_observable_gauge(
            "towline.workers", [reads(_workers)], "{worker}", "Workers with a lease."
        )
        meter.create_observable_counter(
            "towline.jobs.ended", [reads(_ended)], "{job}", "Jobs that ended, in all workers."
        )

    def _reads(
        self, read: Callable[[Look], list[Observation]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def call(_: CallbackOptions) -> Iterable[Observation]:
            looks = [cluster.look() for cluster in list(self._clusters.values())]
            return [each for look in looks if look is not None for each in read(look)]

        return call


def observed(number: float, labels: Labels) -> Observation:
    return Observation(number, {words.SYSTEM: "towline", **dict(labels)})


def _jobs(look: Look) -> list[Observation]:
    return [
        observed(number, ((words.DESTINATION, queue), (words.STATE, state)))
        for (queue, state), number in look.jobs.items()
    ]


def _ages(look: Look) -> list[Observation]:
    return [observed(age, ((words.DESTINATION, queue),)) for queue, age in look.ages.items()]


def _workers(look: Look) -> list[Observation]:
    return [observed(look.workers, ())]


def _ended(look: Look) -> list[Observation]:
    return [
        observed(number, ((words.DESTINATION, queue), (words.TASK, task), (words.OUTCOME, outcome)))
        for (queue, task, outcome), number in look.sums.ended.items()
    ]
