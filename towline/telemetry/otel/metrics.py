"""Metrics by OpenTelemetry, from the events of an app, on their thread."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ...events import kinds
from ..labels import Labels
from . import conventions as words
from .instruments import CONSUMED, DROPPED, LEASES_LOST, REFUSED, SENT, Instruments

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

    from ...app import Towline

NAMES = (
    kinds.JobEnqueued.name, kinds.AttemptStarted.name, kinds.AttemptEnded.name,
    kinds.OperationEnded.name, kinds.LeaseLost.name, kinds.TelemetryDropped.name,
)  # fmt: skip

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

    @property
    def begun(self) -> bool:
        return self._instruments is not None

    def end(self) -> None:
        if self._instruments is not None:
            self._app.runner.events.unsubscribe(self.note)
            self._instruments.forget(self._app)
            self._instruments = None

    # ---- in the thread of the events

    def note(self, event: kinds.Event) -> None:
        to = self._instruments
        if to is None:
            return
        match event:
            case kinds.AttemptStarted():
                to.count(CONSUMED, ((words.OPERATION, "claim"), *self._place(event)))
                to.waited.record(event.waited, _attributes(self._place(event)))
            case kinds.AttemptEnded():
                self._note_ended(to, event)
            case kinds.OperationEnded(operation=operation, error_type=raised):
                labels = ((words.OPERATION, operation), *self._error(raised))
                to.operated.record(event.duration, _attributes(labels))
                if operation == "enqueue" and raised is not None:
                    to.count(SENT, labels)
            case kinds.JobEnqueued(created=created, count=count):
                labels = ((words.OPERATION, "enqueue"), *self._place(event))
                to.count(SENT, (*labels, (words.CREATED, created)), count)
            case kinds.LeaseLost():
                to.count(LEASES_LOST, ())
            case kinds.TelemetryDropped(count=count):
                to.count(DROPPED, (), count)

    def _note_ended(self, to: Instruments, event: kinds.AttemptEnded) -> None:
        if event.accepted is False:
            to.count(REFUSED, self._place(event))
            return
        if event.outcome == "released" and not event.duration:
            return  # it went back before it began
        bad = event.outcome in words.BAD
        error = self._error((event.error_type or event.outcome) if bad else None)
        labels = (*self._place(event), (words.OUTCOME, event.outcome), *error)
        to.ran.record(event.duration, _attributes(labels))

    def _place(self, event: Any) -> tuple[tuple[str, str], tuple[str, str]]:
        labels = self._labels
        return (words.DESTINATION, labels.queue(event.queue)), (words.TASK, labels.task(event.task))

    def _error(self, kind: str | None) -> tuple[tuple[str, str], ...]:
        return () if kind is None else ((words.ERROR, self._labels.error_type(kind)),)


def _attributes(labels: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return {words.SYSTEM: "towline", **dict(labels)}
