"""What this process does, counted from its events on their own thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...events import kinds
from ..labels import Labels
from . import catalogue
from .families import Histogram, Values, described, histogram, numbers

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from ...app import Towline

NAMES = (
    kinds.JobEnqueued.name, kinds.AttemptEnded.name, kinds.OperationEnded.name,
    kinds.LeaseLost.name, kinds.TelemetryDropped.name,
)  # fmt: skip


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

        self._attempts = self._numbers[catalogue.ATTEMPTS.name]
        self._run = self._histograms[catalogue.RUN.name]
        self._wait = self._histograms[catalogue.WAIT.name]

    def begin(self) -> None:
        self._app.runner.events.subscribe(self._note, NAMES)

    def end(self) -> None:
        self._app.runner.events.unsubscribe(self._note)

    # ---- in the thread of the events

    def _note(self, event: kinds.Event) -> None:
        if type(event) is kinds.AttemptEnded:
            self._note_attempt(event)
            return
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

    def _note_attempt(self, event: kinds.AttemptEnded) -> None:
        """One for each attempt: written out, since it is most of what metrics cost."""
        place = queue, task = self._labels.queue(event.queue), self._labels.task(event.task)
        if event.accepted is False:
            self._count(catalogue.REFUSED, place)
            return
        if event.outcome == "released" and not event.duration:
            return  # it went back before it began
        self._attempts[queue, task, event.outcome] += 1
        self._run.add(place, event.duration)
        self._wait.add(place, event.waited)

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
