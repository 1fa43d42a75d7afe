"""What this process does, counted from its events on their own thread."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ...events import kinds
from ..labels import OTHER, Labels
from . import catalogue
from .families import Histogram, Values, described, histogram, numbers

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from ...app import Towline
    from ...events.tally import Over

NAMES = (
    kinds.JobEnqueued.name, kinds.OperationEnded.name, kinds.LeaseLost.name,
    kinds.TelemetryDropped.name,
)  # fmt: skip


class Place(Struct, eq=False):
    """Where the numbers of one task in one queue are."""

    values: tuple[str, str]
    attempts: Counter[Values]
    run: list[float]
    wait: list[float]


class ProcessMetrics:
    """A collector of prometheus-client, and a subscriber.

    The client's own counters would do, and cost four times as much for each number; a registry
    takes both.
    """

    def __init__(self, app: Towline) -> None:
        self._app = app
        self._labels = Labels(app.knows)
        self._numbers: dict[str, Counter[Values]] = {
            metric.name: Counter() for metric in catalogue.PROCESS if metric.kind == "counter"
        }
        for name in (catalogue.LEASES_LOST.name, catalogue.DROPPED.name):
            self._numbers[name][()] = 0  # there from the start: a rate needs a first value
        self._histograms = {
            metric.name: Histogram() for metric in catalogue.PROCESS if metric.kind == "histogram"
        }

        self._places: dict[tuple[str, str], Place] = {}

    def begin(self) -> None:
        self._app.runner.events.subscribe(self._note, NAMES)
        self._app.runner.events.count(None, self._count_attempts)

    def end(self) -> None:
        self._app.runner.events.unsubscribe(self._note)
        self._app.runner.events.count_no_more(self._count_attempts)

    # ---- in the thread of the events

    def _note(self, event: kinds.Event) -> None:
        match event:
            case kinds.OperationEnded(operation=operation, duration=duration, error_type=raised):
                self._time(catalogue.OPERATION, (operation,), duration)
                if raised is not None:
                    kind = self._labels.error_type(raised)
                    self._count(catalogue.OPERATION_ERRORS, (operation, kind))
            case kinds.JobEnqueued(task=task, queue=queue, created=created, count=count):
                place = self._labels.queue(queue), self._labels.task(task)
                self._count(catalogue.ENQUEUED, (*place, "true" if created else "false"), count)
            case kinds.LeaseLost():
                self._count(catalogue.LEASES_LOST, ())
            case kinds.TelemetryDropped(count=count):
                self._count(catalogue.DROPPED, (), count)

    def _count_attempts(self, rows: Sequence[Over]) -> None:
        """Written out, since it is most of what metrics cost: numbers are added where they are."""
        places, bounds = self._places, catalogue.SECONDS
        for task, queue, outcome, accepted, _, waited, lasted, _ in rows:
            place = places.get((task, queue)) or self._place(task, queue)
            if accepted is False:
                self._count(catalogue.REFUSED, place.values)
            elif lasted or outcome != "released":  # else it went back before it began
                place.attempts[(*place.values, outcome)] += 1
                place.run[bisect_left(bounds, lasted)] += 1
                place.run[-1] += lasted
                place.wait[bisect_left(bounds, waited)] += 1
                place.wait[-1] += waited

    def _place(self, task: str, queue: str) -> Place:
        if len(self._places) >= 1000:  # queues may be many
            self._places.clear()
        values = self._labels.queue(queue), self._labels.task(task)
        found = Place(
            values,
            self._numbers[catalogue.ATTEMPTS.name],
            self._histograms[catalogue.RUN.name].row(values),
            self._histograms[catalogue.WAIT.name].row(values),
        )
        if OTHER not in values:  # a task may become known
            self._places[task, queue] = found
        return found

    def _count(self, metric: catalogue.Metric, values: Values, number: int = 1) -> None:
        self._numbers[metric.name][values] += number

    def _time(self, metric: catalogue.Metric, values: Values, seconds: float) -> None:
        self._histograms[metric.name].add(values, seconds)

    # ---- for a registry, in the thread of a scrape

    def describe(self) -> list[Family]:
        return described(catalogue.PROCESS)

    def collect(self) -> Iterator[Family]:
        for metric in catalogue.PROCESS:
            if metric is catalogue.SLOTS:
                yield numbers(metric, self._slots())
            elif metric.kind == "histogram":
                rows = self._histograms[metric.name].rows()
                yield histogram(metric, catalogue.SECONDS, rows)
            else:
                yield numbers(metric, self._numbers[metric.name].copy())

    def _slots(self) -> dict[Values, float]:
        workers = list(self._app.workers_here)
        busy = sum(worker.busy for worker in workers)
        all = sum(worker.settings.concurrency for worker in workers)
        return {("busy",): busy, ("free",): max(all - busy, 0)}
