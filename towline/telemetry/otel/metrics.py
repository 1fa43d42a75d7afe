"""Metrics by OpenTelemetry, from the events of an app, on their thread."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context

from ...events import kinds
from ..labels import Labels
from . import conventions as words
from .instruments import CONSUMED, DROPPED, LEASES_LOST, REFUSED, SECONDS, SENT, Instruments

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from ...app import Towline
    from ...events.tally import Begun, Over

NAMES = (
    kinds.JobEnqueued.name, kinds.OperationEnded.name, kinds.LeaseLost.name,
    kinds.TelemetryDropped.name,
)  # fmt: skip

# A context with nothing in it. OpenTelemetry takes one that is false for none.
NOWHERE = Context({"towline": True})

_by_given: weakref.WeakKeyDictionary[MeterProvider, Instruments] = weakref.WeakKeyDictionary()
_global: list[Instruments] = []


def instruments_of(given: MeterProvider | None) -> Instruments:
    """Those of this provider of meters, or of the global one."""
    if given is None:
        if not _global:
            _global.append(Instruments(None))
        return _global[0]
    found = _by_given.get(given)
    if found is None:
        found = _by_given[given] = Instruments(given)
    return found


class Measures:
    """The subscriber of one app."""

    def __init__(self, app: Towline, given: MeterProvider | None, cluster: bool) -> None:
        self._app = app
        self._given = given
        self._cluster = cluster
        self._labels = Labels(app.knows)
        self._instruments: Instruments | None = None

    def begin(self) -> None:
        """Once there is somebody who collects."""
        if self._instruments is None:
            self._instruments = instruments = instruments_of(self._given)
            instruments.apps.add(self._app)
            if self._cluster:
                instruments.look_at(self._app)
            self._app.runner.events.subscribe(self.note, NAMES)
            self._app.runner.events.count(self.count_begun, self.count_over)

    @property
    def begun(self) -> bool:
        return self._instruments is not None

    def end(self) -> None:
        if self._instruments is not None:
            self._app.runner.events.unsubscribe(self.note)
            self._app.runner.events.count_no_more(self.count_begun, self.count_over)
            self._instruments.forget(self._app)
            self._instruments = None

    # ---- in the thread of the events

    def note(self, event: kinds.Event) -> None:
        to = self._instruments
        if to is None:
            return
        match event:
            case kinds.OperationEnded(operation=operation, error_type=raised):
                labels = ((words.OPERATION, operation), *self._error(raised))
                to.operated.record(event.duration, _attributes(labels))
                if operation == "enqueue" and raised is not None:
                    to.count(SENT, labels)
            case kinds.JobEnqueued(created=created, count=count):
                labels = ((words.OPERATION, "enqueue"), *self._place(event.task, event.queue))
                to.count(SENT, (*labels, (words.CREATED, created)), count)
            case kinds.LeaseLost():
                to.count(LEASES_LOST, ())
            case kinds.TelemetryDropped(count=count):
                to.count(DROPPED, (), count)

    def count_begun(self, rows: Sequence[Begun]) -> None:
        """Those of one task and queue together, where OpenTelemetry takes that."""
        to = self._instruments
        if to is None:
            return
        numbers = Counter[tuple[str, str]]()
        places: dict[tuple[str, str], dict[str, Any]] = {}
        record = to.waited.record
        for task, queue, waited in rows:
            key = task, queue
            numbers[key] += 1
            attributes = places.get(key)
            if attributes is None:
                attributes = places[key] = _attributes(self._place(task, queue))
            record(waited, attributes, NOWHERE)
        for (task, queue), number in numbers.items():
            labels = ((words.OPERATION, "claim"), *self._place(task, queue))
            to.count(CONSUMED, labels, number)

    def count_over(self, rows: Sequence[Over]) -> None:
        """With the span, where that is kept, as an example that leads there: OpenTelemetry takes
        one for each bucket, so one of these rows will do."""
        to = self._instruments
        if to is None:
            return
        found: dict[tuple[str, str, str, str | None], tuple[dict[str, Any], set[int]]] = {}
        record = to.ran.record
        for task, queue, outcome, accepted, raised, _, lasted, span in rows:
            if accepted is False:
                to.count(REFUSED, self._place(task, queue))
                continue
            if outcome == "released" and not lasted:
                continue  # it went back before it began
            key = task, queue, outcome, raised
            kind = found.get(key)
            if kind is None:
                error = self._error((raised or str(outcome)) if outcome in words.BAD else None)
                labels = (*self._place(task, queue), (words.OUTCOME, str(outcome)), *error)
                kind = found[key] = _attributes(labels), set()
            context: Any = NOWHERE
            if span is not None and span.recording:
                bucket = bisect_left(SECONDS, lasted)
                if bucket not in kind[1]:
                    kind[1].add(bucket)
                    context = span.around() or NOWHERE
            record(lasted, kind[0], context)

    def _place(self, task: str, queue: str) -> tuple[tuple[str, str], tuple[str, str]]:
        labels = self._labels
        return (words.DESTINATION, labels.queue(queue)), (words.TASK, labels.task(task))

    def _error(self, kind: str | None) -> tuple[tuple[str, str], ...]:
        return () if kind is None else ((words.ERROR, self._labels.error_type(kind)),)


def _attributes(labels: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {words.SYSTEM: "towline", **dict(labels)}
