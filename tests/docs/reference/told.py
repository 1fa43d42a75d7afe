"""What a small shop tells OpenTelemetry: it runs once, and pages say which spans, instruments and
attributes there were."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from logging import NullHandler, getLogger
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import Mock

from msgspec import Struct
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, InMemoryMetricReader, Sum
from opentelemetry.sdk.metrics.export import Metric as Measured
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from towline import DuplicateKey, Next, Towline
from towline.otel import instrument
from towline.telemetry.otel import conventions
from towline.telemetry.otel.instruments import Instruments
from towline.telemetry.otel.tracing import SpanTracing

TASKS, QUEUES = ("pack", "send", "lose"), ("default", "mail")
# The names of attributes, in the order of the code: "messaging.system", "towline.task" and so on.
ATTRIBUTES = [
    value
    for name, value in vars(conventions).items()
    if name.isupper() and isinstance(value, str) and re.fullmatch(r"[a-z]+\.[\w.]+", value)
]
# A row of an attempt whose end was refused.
REFUSED = "pack", "default", "completed", False, None, 0.0, 0.0, None


class Told(Struct):
    """A span or an instrument: the attributes that it always has, and those it may have."""

    name: str
    kind: str
    always: list[str]
    other: list[str]
    unit: str = ""
    text: str = ""
    bounds: tuple[float, ...] = ()


@cache
def told() -> tuple[list[Told], list[Told]]:
    """Its spans and its instruments, by name."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    with TemporaryDirectory() as folder, _nobody_hears_of_it():
        app = Towline(f"sqlite:///{folder}/shop.db")
        instrument(app, cluster=True, tracer_provider=tracers, meter_provider=meters)
        _work(app)
        data = reader.get_metrics_data()
        app.close()
    assert data is not None
    measured = [
        metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    spans: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for span in exporter.get_finished_spans():
        place = _without_names(span.name), span.kind.name
        spans.setdefault(place, []).append(span.attributes or {})
    instruments = {metric.name: _instrument(metric) for metric in measured}
    assert instruments.keys() == names_of_process() | names_of_cluster(), "one has said nothing"
    return (
        [Told(*place, *_attributes(found)) for place, found in sorted(spans.items())],
        [instruments[name] for name in sorted(instruments)],
    )


def names_of_process() -> set[str]:
    """The instruments that each process has."""
    return _made_by(lambda _: None)


def names_of_cluster() -> set[str]:
    """Those that cluster=True adds."""
    return _made_by(Instruments._make_cluster) - names_of_process()


def _made_by(more: Callable[[Instruments], None]) -> set[str]:
    provider = Mock()
    more(Instruments(provider))
    calls = provider.get_meter.return_value.method_calls
    return {call.args[0] for call in calls if call[0].startswith("create_")}


@contextmanager
def _nobody_hears_of_it() -> Iterator[None]:
    """Where no log is set up, what fails is not printed either."""
    nobody = NullHandler()
    getLogger("towline").addHandler(nobody)
    yield
    getLogger("towline").removeHandler(nobody)


def _work(app: Towline) -> None:
    """Do whatever makes a span, or a number, of its own kind."""

    @app.task
    def pack(order: int) -> Next[str]:
        return send.then(order)

    @app.task(queue="mail")
    def send(order: int) -> str:
        return "sent"

    @app.task(max_attempts=1)
    def lose(order: int) -> None:
        raise ConnectionError

    first = pack.enqueue(1)
    send.using(after=[first]).enqueue(1)
    app.enqueue_many([pack.call(2), pack.call(3)])
    app.enqueue_many([pack.call(4), lose.call(4)])
    app.enqueue_many([pack.call(5), send.call(5)])
    for _ in range(2):
        send.using(key="5", delay=3600).enqueue(5)
    with suppress(DuplicateKey):
        send.using(key="5", on_conflict="raise").enqueue(5)
    app.worker(drain=True).run()
    pack.enqueue(6)  # one that is left: a queue has an age
    assert app.runner.events.flush(60)
    tracing = app.tracing
    assert isinstance(tracing, SpanTracing)
    assert tracing.measures is not None
    tracing.measures.count_over([REFUSED])


def _without_names(name: str) -> str:
    for words, kind in ((TASKS, "{task}"), (QUEUES, "{queue}")):
        for word in words:
            name = re.sub(rf"\b{word}\b", kind, name)
    return name


def _instrument(metric: Measured) -> Told:
    points = metric.data.data_points
    always, other = _attributes([point.attributes or {} for point in points])
    bounds: tuple[float, ...] = ()
    if isinstance(metric.data, Histogram):
        kind, bounds = "histogram", tuple(metric.data.data_points[0].explicit_bounds)
    elif isinstance(metric.data, Sum):
        kind = "counter" if metric.data.is_monotonic else "up-down counter"
    else:
        kind = "gauge"
    return Told(
        metric.name, kind, always, other, metric.unit or "", metric.description or "", bounds
    )


def _attributes(found: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Those that all have, and those that only some have, in the order of the code."""
    several = [set(each) for each in found]
    some, every = set.union(*several), set.intersection(*several)
    assert some <= set(ATTRIBUTES), f"attributes beside conventions.py: {some - set(ATTRIBUTES)}"
    return (
        [name for name in ATTRIBUTES if name in every],
        [name for name in ATTRIBUTES if name in some - every],
    )
