"""T7: exporters and processors that raise, hang or are shut down change no outcome and cost no
lease; a stop stays within its grace."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.context import Context as OtelContext
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)

from tests.telemetry.collected import Collected
from tests.telemetry.receiver import receiving
from tests.until import LIMIT
from towline import ChainFailed, Next, Towline
from towline.errors import TowlineError
from towline.otel import instrument
from towline.telemetry.otel import guard

LEASE = 1.0


class Raising(SpanProcessor):
    """Raises where it is told to."""

    def __init__(self, where: str) -> None:
        self._where = where

    def on_start(self, span: Span, parent_context: OtelContext | None = None) -> None:
        if self._where == "on_start":
            raise RuntimeError("no")

    def on_end(self, span: ReadableSpan) -> None:
        if self._where == "on_end":
            raise RuntimeError("no")


class Hanging(SpanExporter):
    """Takes until the test is over."""

    def __init__(self) -> None:
        self.entered, self.over = threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        self.over.wait(LIMIT)
        return SpanExportResult.SUCCESS


def tasks(app: Towline) -> Any:
    @app.task
    def fine(number: int) -> Next[int]:
        return then.then(number)

    @app.task
    async def then(number: int) -> int:
        return number

    @app.task(max_attempts=2, backoff=lambda _: 0)
    def fails() -> None:
        raise ValueError

    return fine, fails


def check(app: Towline) -> None:
    """Everything is as if nobody watched."""
    fine, fails = tasks(app)
    with app.worker():
        good, bad = fine.enqueue(1), fails.enqueue()
        assert good.result(LIMIT) == 1
        with pytest.raises(ChainFailed):
            bad.result(LIMIT)
        assert fine.using(key="k").enqueue(2).result(LIMIT) == 2
    assert [attempt.outcome for attempt in app.attempts(bad.id)] == ["failed", "failed"]
    assert [attempt.outcome for attempt in app.attempts(good.id)] == ["continued"]


@pytest.mark.parametrize("where", ["on_start", "on_end"])
def test_T7_a_processor_that_raises(
    app: Towline, where: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "COMPLAIN_EVERY", 0.0)
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(Raising(where))
    instrument(app, tracer_provider=tracers, metrics=False)
    with caplog.at_level(logging.WARNING, "towline.telemetry"):
        check(app)
    said = [r.getMessage() for r in caplog.records if r.name == "towline.telemetry"]
    assert set(said) == {"OpenTelemetry failed; the work goes on without"}


def test_what_fails_again_and_again_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @guard.guarded(7)
    def fails() -> int:
        raise ValueError

    with caplog.at_level(logging.WARNING, "towline.telemetry"):
        assert [fails() for _ in range(5)] == [7] * 5
    assert len(caplog.records) == 1


def test_T7_an_exporter_that_raises(app: Towline) -> None:
    class Broken(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            raise RuntimeError("no")

    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(Broken()))
    instrument(app, tracer_provider=tracers)
    check(app)


def test_T7_providers_that_are_shut_down(app: Towline) -> None:
    collected = Collected()
    collected.instrument(app)
    collected.tracers.shutdown()
    collected.meters.shutdown()
    check(app)


def test_T7_a_receiver_that_answers_500(app: Towline) -> None:
    with receiving(500) as receiver:
        tracers = TracerProvider(shutdown_on_exit=False)
        batch = BatchSpanProcessor(OTLPSpanExporter(receiver.address + "/v1/traces", timeout=1))
        tracers.add_span_processor(batch)
        instrument(app, tracer_provider=tracers, metrics=False)
        check(app)
        tracers.force_flush(1000)
        tracers.shutdown()
        assert receiver.requests


@pytest.mark.each_engine
def test_T7_an_exporter_that_hangs_costs_no_lease_and_a_stop_ends(app: Towline) -> None:
    """What waits for it is dropped with the worker's end."""
    exporter = Hanging()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))

    @app.task
    def short() -> None: ...

    @app.task
    def long() -> None:
        time.sleep(2 * LEASE)

    jobs = [short.enqueue(), long.enqueue()]
    lost: list[Any] = []
    app.runner.events.subscribe(lost.append, ["lease.lost"])
    instrument(app, tracer_provider=tracers, metrics=False)
    worker = app.worker(lease=LEASE, grace=5).start()
    assert exporter.entered.wait(LIMIT)
    for job in jobs:
        job.result(LIMIT)
    worker.stop()
    assert not worker.running
    exporter.over.set()
    app.runner.events.flush(LIMIT)
    assert lost == []
    for job in jobs:
        assert [attempt.outcome for attempt in app.attempts(job.id)] == ["completed"]


def test_T7_an_enqueue_whose_span_cannot_be_made_is_an_enqueue(app: Towline) -> None:
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(Raising("on_start"))
    instrument(app, tracer_provider=tracers, metrics=False)
    fine, _ = tasks(app)
    once = fine.using(on_conflict="raise", key="k")
    once.enqueue(1)
    with pytest.raises(TowlineError):
        once.enqueue(1)
    assert [job.trace for job in app.jobs()] == [None]
