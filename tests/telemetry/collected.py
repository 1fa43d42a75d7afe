"""What an app tells OpenTelemetry, kept by the SDK in this process's memory."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler
from opentelemetry.trace import SpanContext, Tracer

from tests.until import LIMIT, until
from towline import Towline
from towline.otel import instrument

Point = tuple[dict[str, Any], Any]


class Collected:
    """Providers of our own, so that tests have nothing in common."""

    def __init__(self, sampler: Sampler = DEFAULT_ON) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self._app: Towline | None = None

    def __enter__(self) -> Collected:
        return self

    def __exit__(self, *_: object) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()

    def watch(self, app: Towline) -> Collected:
        """Of this app, which has been told of its providers already."""
        self._app = app
        return self

    def instrument(self, app: Towline, **settings: Any) -> None:
        self.watch(app)
        instrument(app, tracer_provider=self.tracers, meter_provider=self.meters, **settings)

    @property
    def tracer(self) -> Tracer:
        """The application's own."""
        return self.tracers.get_tracer("shop")

    # ---- spans

    def spans(self, name: str | None = None) -> list[ReadableSpan]:
        """Those that have ended, after all that was told before."""
        assert self._app is not None
        assert self._app.runner.events.flush(LIMIT)
        found = self._exporter.get_finished_spans()
        return [span for span in found if name is None or span.name == name]

    def span(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span

    def wait_for(self, name: str, number: int = 1) -> list[ReadableSpan]:
        return until(
            lambda: found if len(found := self.spans(name)) >= number else None, f"span {name}"
        )

    # ---- metrics

    def metrics(self) -> dict[str, list[Point]]:
        """Each by its name: attributes, and a value or the number of a histogram."""
        assert self._app is not None
        assert self._app.runner.events.flush(LIMIT)
        data = self._reader.get_metrics_data()
        found: dict[str, list[Point]] = {}
        if data is None:
            return found
        for resource in json.loads(data.to_json())["resource_metrics"]:
            for scope in resource["scope_metrics"]:
                for metric in scope["metrics"]:
                    found[metric["name"]] = [
                        (point["attributes"], point.get("value", point.get("count")))
                        for point in metric["data"]["data_points"]
                    ]
        return found

    def text(self) -> str:
        """All of it as text, as an exporter would write it."""
        spans = "".join(span.to_json() for span in self.spans())
        data = self._reader.get_metrics_data()
        return spans + ("" if data is None else data.to_json())


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def ids(span: ReadableSpan) -> tuple[int, int]:
    """By which others name it."""
    own = context(span)
    return own.trace_id, own.span_id


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def traceparent(span: ReadableSpan) -> str:
    """As it stands in the column."""
    trace, own = ids(span)
    return f"00-{trace:032x}-{own:016x}-{context(span).trace_flags:02x}"
