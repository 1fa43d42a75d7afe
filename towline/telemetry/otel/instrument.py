"""`instrument(app)` and its opposite: who is told what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...errors import InvalidSetting
from . import presence
from .metrics import Measures
from .tracing import Relate, Relation, SpanTracing

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from ...app import Towline


def instrument(
    app: Towline,
    *,
    relation: Relation | Relate = "link",
    metrics: bool = True,
    baggage: Iterable[str] = (),
    cluster: bool = False,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Make spans and metrics of what this app stores and runs in this process.

    By the global providers, also if those are set later, or by the given ones. `relation`: whether
    an attempt begins a trace with a link to what created its job ("link"), or is below it
    ("child"), or a function of task, queue, attempt, position and seconds waited that says which.
    `baggage`: keys of it that travel with jobs. `cluster`: metrics also of what the database knows
    of all workers, in one process of the installation. The first call counts, until `uninstrument`.
    """
    keys = _check(app, relation, baggage, metrics, cluster)
    _check_source("tracer_provider", tracer_provider, "get_tracer")
    _check_source("meter_provider", meter_provider, "get_meter")
    if app.tracing is not None:
        return
    presence.resolve()
    measures = Measures(app, meter_provider, cluster) if metrics else None
    tracing = SpanTracing(relation, keys, tracer_provider, measures)
    if measures is not None and (meter_provider is not None or presence.has_meters()):
        measures.begin()
    app.runner.events.surroundings = tracing.around
    app.tracing = tracing


def uninstrument(app: Towline) -> None:
    """Make none any more; what runs ends its spans."""
    tracing, app.tracing = app.tracing, None
    app.runner.events.surroundings = None
    if isinstance(tracing, SpanTracing) and tracing.measures is not None:
        tracing.measures.end()


def _check_source(setting: str, given: object, method: str) -> None:
    """That tracers or meters can be had from it."""
    if given is not None and not callable(getattr(given, method, None)):
        raise InvalidSetting(f"{setting}= is one of OpenTelemetry's, not {given!r}")


def _check(
    app: object, relation: object, baggage: object, metrics: object, cluster: object
) -> tuple[str, ...]:
    if not hasattr(app, "tracing"):
        raise InvalidSetting(f"instrument() takes an app, not {type(app).__name__}")
    if relation not in ("link", "child") and not callable(relation):
        raise InvalidSetting(f'relation is "link", "child" or a function, not {relation!r}')
    if isinstance(baggage, str) or not isinstance(baggage, Iterable):
        raise InvalidSetting(f"baggage is a collection of keys, not {baggage!r}")
    keys = tuple(baggage)
    for key in keys:
        if not isinstance(key, str) or not key:
            raise InvalidSetting(f"a key of baggage is text, not {key!r}")
    for name, said in (("metrics", metrics), ("cluster", cluster)):
        if not isinstance(said, bool):
            raise InvalidSetting(f"{name} is True or False, not {said!r}")
    if cluster and not metrics:
        raise InvalidSetting("cluster=True is about metrics, and metrics=False says none")
    return keys
