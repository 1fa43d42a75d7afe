"""Between OpenTelemetry's context and the column `trace`: always W3C, whatever propagators the
application has for other things. Of baggage only the keys that were named travel."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import json
from opentelemetry import baggage
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
)

from ...task.trace import TRACEPARENT, carrier_of

MOST_BAGGAGE = 512  # bytes, as they are stored

_propagator = W3CBaggagePropagator()


def text_of(span: SpanContext, context: Context | None, keys: Collection[str]) -> str | None:
    """For the column: a span, and what travels with it of this context (None: the current one)."""
    if not span.is_valid:
        return None
    traceparent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    if not span.trace_state and not keys:
        return traceparent
    carrier = {"traceparent": traceparent}
    if span.trace_state:
        carrier["tracestate"] = span.trace_state.to_header()
    if keys and (header := _baggage_header(baggage.get_all(context), keys)):
        carrier["baggage"] = header
    return traceparent if len(carrier) == 1 else json.encode(carrier).decode()


def _baggage_header(given: Mapping[str, object], keys: Collection[str]) -> str:
    """As much of it as there is room for, by the order of the keys."""
    header = ""
    for key in keys:
        if (value := given.get(key)) is not None:
            carrier: dict[str, str] = {}
            _propagator.inject(carrier, baggage.set_baggage(key, value, Context()))
            longer = ",".join(filter(None, (header, carrier.get("baggage"))))
            if len(longer) <= MOST_BAGGAGE:
                header = longer
    return header


def span_of(text: str | None) -> SpanContext | None:
    """The span that a text of the column names; None when it names none."""
    return context_of(text, ())[0]


def _span(traceparent: str, state: str | None = None) -> SpanContext | None:
    found = TRACEPARENT.fullmatch(traceparent)
    if found is None or found[1] == "ff":
        return None
    _, trace, span, flags = found.groups()
    states = TraceState.from_header([state]) if state else None
    known = SpanContext(int(trace, 16), int(span, 16), True, TraceFlags(int(flags, 16)), states)
    return known if known.is_valid else None


def context_of(text: str | None, keys: Collection[str]) -> tuple[SpanContext | None, Context]:
    """The span that a text names, and a context with the baggage beside it, without the span."""
    context = Context()
    if not text:
        return None, context
    if text[0] != "{":  # nearly all: nothing travels beside it
        return _span(text), context
    carrier = carrier_of(text)
    if keys and "baggage" in carrier:
        context = _propagator.extract(carrier, context)
        for key in set(baggage.get_all(context)) - set(keys):
            context = baggage.remove_baggage(key, context)
    return _span(carrier.get("traceparent", ""), carrier.get("tracestate")), context


def below(span: SpanContext, context: Context) -> Context:
    """A context in which that span is the current one."""
    return set_span_in_context(NonRecordingSpan(span), context)


def current_span() -> SpanContext:
    return get_current_span().get_span_context()
