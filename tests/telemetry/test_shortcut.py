"""What is begun on a shortcut says what OpenTelemetry's own way says, and is as good when a handler
uses it."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_ON,
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from tests.telemetry.collected import attributes
from tests.until import LIMIT
from towline import INJECTED, Context, Next, Towline
from towline.otel import FollowLinks, instrument
from towline.telemetry.otel.late_span import LateSpan
from towline.telemetry.otel.shortcut import shortcut_of
from towline.telemetry.otel.verdict import verdict_of
from towline.testing import drain

VARYING = (
    "towline.waited", "towline.worker", "messaging.message.id",
    "messaging.message.conversation_id",
)  # fmt: skip
RESOURCE = Resource.create({"service.name": "shop"})


class Looking(SpanProcessor):
    """Wants to see spans begin, so none is begun on the shortcut."""

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        assert type(span) is not LateSpan


class Telling(Sampler):
    """Keeps all, and says so on each."""

    def should_sample(self, *args: Any, **settings: Any) -> SamplingResult:
        said = {**args[4], "said": [1, 2]}
        return SamplingResult(Decision.RECORD_AND_SAMPLE, said)

    def get_description(self) -> str:
        return "Telling"


def run(app: Towline, *processors: SpanProcessor, **settings: Any) -> list[ReadableSpan]:
    """The spans of jobs that go well and badly, alone, in a chain and with a blocker."""
    exporter = InMemorySpanExporter()
    tracers = TracerProvider(resource=RESOURCE, shutdown_on_exit=False, **settings)
    for processor in (SimpleSpanProcessor(exporter), *processors):
        tracers.add_span_processor(processor)
    instrument(app, tracer_provider=tracers, metrics=False)

    @app.task
    def first(number: int) -> Next[int]:
        return then.then(number)

    @app.task
    def then(number: int) -> int:
        return number

    @app.task(max_attempts=1)
    def fails() -> None:
        raise ValueError

    first.using(trace=f"00-{7:032x}-{9:016x}-01").enqueue(1)
    fails.enqueue()
    then.using(after=[first.enqueue(2)]).enqueue(3)
    drain(app, raising=False)
    assert app.runner.events.flush()
    runs = [span for span in exporter.get_finished_spans() if span.name.startswith("run ")]
    assert len(runs) == 6
    return runs


def said(span: ReadableSpan) -> Any:
    """All that does not change from one time to the next."""
    mine = attributes(span)
    for name in VARYING:
        mine.pop(name)
    context = span.context
    assert context is not None
    return (
        span.name, span.kind, mine, span.status.status_code, span.status.description,
        [(dict(link.attributes or {}), link.dropped_attributes) for link in span.links],
        span.events, span.resource, span.instrumentation_scope, context.trace_flags,
        context.trace_state, context.is_remote, span.parent is None, span.dropped_attributes,
        span.dropped_events, span.dropped_links,
        span.end_time is not None and span.start_time is not None
        and span.start_time <= span.end_time,
    )  # fmt: skip


@pytest.mark.parametrize(
    "sampler", [DEFAULT_ON, FollowLinks(), Telling()], ids=["always", "links", "telling"]
)
def test_T2_it_says_what_the_long_way_says(
    make_app: Callable[..., Towline], sampler: Sampler
) -> None:
    short, long = make_app(), make_app()
    quick = run(short, sampler=sampler)
    slow = run(long, Looking(), sampler=sampler)
    assert list(map(said, quick)) == list(map(said, slow))
    assert [type(each.to_json()) for each in quick] == [str] * 6


def test_limits_are_kept(app: Towline) -> None:
    spans = run(app, span_limits=SpanLimits(max_span_attributes=3))
    assert {len(span.attributes or ()) for span in spans} == {3}


@pytest.mark.parametrize("after", [False, True])
def test_T4_what_a_handler_does_with_its_span_is_there(app: Towline, after: bool) -> None:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(app, tracer_provider=tracers, metrics=False)
    seen: list[Any] = []

    @app.task
    def pack(ctx: Context = INJECTED) -> None:
        span = trace.get_current_span()
        seen.append(span)
        assert isinstance(span, Span)
        assert span.is_recording()
        if not after:
            span.set_attribute("customer", 7)
            span.add_event("packed", {"weight": 2})
            assert span.name == "run pack"
            assert (span.attributes or {})["towline.attempt"] == 1

    pack.enqueue()
    drain(app)
    assert app.runner.events.flush()
    (span,) = seen
    (ran,) = [each for each in exporter.get_finished_spans() if each.name == "run pack"]
    assert ran.context == span.get_span_context()
    assert not span.is_recording()
    assert attributes(ran)["towline.outcome"] == "completed"
    if after:  # it is over: what is said now is not heard, and it is not sent twice
        span.set_attribute("customer", 7)
        assert attributes(span) == attributes(ran)
        assert (span.start_time, span.end_time) == (ran.start_time, ran.end_time)
        assert len(exporter.get_finished_spans()) == 2
    else:
        assert attributes(ran)["customer"] == 7
        assert [event.name for event in ran.events] == ["packed"]
    assert ran.status.status_code is StatusCode.UNSET


def test_T4_two_threads_of_a_handler_touch_its_span_at_once(
    app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes while the SDK builds the span for the first."""
    exporter = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(app, tracer_provider=tracers, metrics=False)
    others: list[Future[None]] = []
    build: Any = Span._new_events

    @app.task
    def pack() -> None:
        with ThreadPoolExecutor(1) as pool:

            def meet(half_built: Span) -> Any:
                if not others:
                    others.append(pool.submit(span.add_event, "second"))
                    wait(others, 0.2)
                return build(half_built)

            span = trace.get_current_span()
            assert type(span) is LateSpan
            monkeypatch.setattr(Span, "_new_events", meet)
            span.add_event("first")
            (other,) = others
            assert other.result(LIMIT) is None

    pack.enqueue()
    drain(app)
    assert app.runner.events.flush()
    (ran,) = [each for each in exporter.get_finished_spans() if each.name == "run pack"]
    assert sorted(event.name for event in ran.events) == ["first", "second"]


@pytest.mark.parametrize(
    "sampler",
    [
        ALWAYS_ON, ALWAYS_OFF, TraceIdRatioBased(0.3), ParentBased(TraceIdRatioBased(0.3)),
        ParentBasedTraceIdRatio(0.3), ParentBased(ALWAYS_OFF), DEFAULT_ON,
    ],
    ids=lambda sampler: sampler.get_description()[:30],
)  # fmt: skip
def test_a_verdict_is_the_samplers(sampler: Sampler) -> None:
    verdict = verdict_of(sampler)
    assert verdict is not None
    chance = random.Random(1)
    for number in range(300):
        id = chance.getrandbits(128)
        parent = SpanContext(id, 5, True, TraceFlags(number % 2)) if number % 3 else None
        above = None if parent is None else set_span_in_context(NonRecordingSpan(parent))
        found = sampler.should_sample(above, id, "run pack", SpanKind.CONSUMER, {}, ())
        assert verdict(id, parent) == (found.decision is Decision.RECORD_AND_SAMPLE)
        assert found.decision is not Decision.RECORD_ONLY


def test_others_are_asked() -> None:
    assert verdict_of(Telling()) is None
    assert verdict_of(FollowLinks()) is None
    assert verdict_of(ParentBased(ALWAYS_ON, remote_parent_sampled=ALWAYS_OFF)) is None


def test_it_closes_as_soon_as_a_processor_looks() -> None:
    tracers = TracerProvider(shutdown_on_exit=False)
    shortcut = shortcut_of(tracers.get_tracer("shop"))
    assert shortcut is not None
    assert shortcut.is_open()
    tracers.add_span_processor(Looking())
    assert not shortcut.is_open()
    assert shortcut_of(trace.NoOpTracer()) is None


def test_T4_below_what_is_dropped_nothing_is_kept(app: Towline) -> None:
    exporter = InMemorySpanExporter()
    tracers = TracerProvider(ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(app, tracer_provider=tracers, metrics=False)
    seen: list[SpanContext] = []

    @app.task
    def pack() -> Next[None]:
        with tracers.get_tracer("shop").start_as_current_span("inside") as inside:
            seen.extend([trace.get_current_span().get_span_context()])
            assert not inside.is_recording()
        seen.append(trace.get_current_span().get_span_context())
        return send.then()

    @app.task
    def send() -> None:
        seen.append(trace.get_current_span().get_span_context())

    pack.enqueue()
    drain(app)
    inside, packed, sent = seen
    assert inside.trace_id == packed.trace_id == sent.trace_id != 0  # one trace, in a log too
    assert not any(each.trace_flags.sampled for each in seen)
    assert not exporter.get_finished_spans()
