"""A quicker way to begin a span, where the tracer is the SDK's own and nothing of it needs more.

The API's way asks the sampler with everything a span will say, and builds all of the span before
the handler runs: twice the time that a job takes which does nothing. Where the sampler is known
(verdict.py), what it drops is never described; what it keeps is written down (late_span.py), unless
a processor wants to see spans begin. It says the same, so a test compares the two in all they say.

Whatever is not as expected here, in another release of the SDK, leads to the API's way.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import SpanProcessor, SynchronousMultiSpanProcessor, Tracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import SpanKind, TraceFlags

from .attempt_span import DroppedSpan
from .context import below
from .conventions import MOST_LINKS
from .late_span import LateSpan
from .verdict import verdict_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import SpanContext, TraceState

    from .attempt_span import Keys, Recording
    from .story import Story, Told

QUIET = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)  # nothing happens at a begin
MOST_ATTRIBUTES = 20  # that we give to a span, with some to spare
RANDOM: int = getattr(TraceFlags, "RANDOM_TRACE_ID", 0)


def shortcut_of(tracer: object) -> Shortcut | None:
    """The one for this tracer; None when it is another than expected."""
    if type(tracer) is not Tracer:
        return None
    try:
        return Shortcut(tracer)
    except AttributeError:
        return None


class Shortcut:
    """Begins the spans of attempts."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._sampler: Any = tracer.sampler
        self._verdict = verdict_of(tracer.sampler)
        ids = tracer.id_generator
        self._make_trace, self._make_id = ids.generate_trace_id, ids.generate_span_id
        is_random: Any = getattr(ids, "is_trace_id_random", None)
        self._random = RANDOM if is_random is not None else 0
        root = self._random if is_random is not None and is_random() else 0
        self._flags = TraceFlags(root), TraceFlags(TraceFlags.SAMPLED | root)
        limits = tracer._span_limits
        self._processors: Any = tracer.span_processor
        self._is_on: Any = getattr(tracer, "_is_enabled", _yes)
        self._usual = (
            type(self._processors) is SynchronousMultiSpanProcessor
            and limits.max_span_attribute_length is None
            and _room(limits.max_span_attributes) >= MOST_ATTRIBUTES
            and _room(limits.max_links) > MOST_LINKS
            and not _is_counted(tracer)
        )
        self._seen: object = None  # of processors; they may become more at any time
        self._quiet = False

    def is_open(self) -> bool:
        """Whether it may be taken now."""
        processors = self._processors._span_processors
        if processors is not self._seen:
            self._quiet = self._usual and all(map(_is_quiet, processors))
            self._seen = processors
        return self._quiet and self._is_on()

    def trace(self, parent: SpanContext | None) -> int:
        """The trace of a span that is begun now."""
        made: int = self._make_trace() if parent is None else parent.trace_id
        return made

    def dropped(
        self, trace: int, parent: SpanContext | None, base: Context, keys: Keys
    ) -> DroppedSpan | None:
        """The span, where it is known already that nobody wants it."""
        verdict = self._verdict
        if verdict is None or verdict(trace, parent):
            return None
        return self._drop(trace, parent, None if parent is None else parent.trace_state, base, keys)

    def start(
        self,
        trace: int,
        story: Story,
        parent: SpanContext | None,
        base: Context,
        at: int | None,
        keys: Keys,
        all: Recording,
        key: int,
    ) -> LateSpan | DroppedSpan:
        """One that was not dropped yet; `parent` is not in that context."""
        told: Told | None = None
        state = None if parent is None else parent.trace_state
        sampled, whole = True, False
        if self._verdict is None:
            attributes, links = story.told()
            above = base if parent is None else below(parent, base)
            said: Any = self._sampler.should_sample(
                above, trace, story.name, SpanKind.CONSUMER, attributes, links
            )
            state = said.trace_state
            if not said.decision.is_recording():
                return self._drop(trace, parent, state, base, keys)
            sampled, told = said.decision.is_sampled(), (dict(said.attributes or {}), links)
            whole = told[0] != attributes  # the SDK looks at what others say
        span = LateSpan(
            self._tracer, story, told, trace, self._make_id(), self._flags_below(parent, sampled),
            state, parent, base, keys, time.time_ns() if at is None else at,
        )  # fmt: skip
        span.is_found_in(all, key)
        if whole:
            span.make_whole()
        return span

    def _drop(
        self,
        trace: int,
        parent: SpanContext | None,
        state: TraceState | None,
        base: Context,
        keys: Keys,
    ) -> DroppedSpan:
        flags = self._flags_below(parent, False)
        return DroppedSpan(trace, self._make_id(), flags, state, base, keys)

    def _flags_below(self, parent: SpanContext | None, sampled: bool) -> TraceFlags:
        if parent is None:
            return self._flags[sampled]
        return TraceFlags(sampled | (parent.trace_flags & self._random))


def _yes() -> bool:
    return True


def _room(limit: int | None) -> float:
    return math.inf if limit is None else limit


def _is_quiet(processor: object) -> bool:
    kind = type(processor)
    return all(
        any(getattr(kind, name, None) is getattr(each, name, None) for each in QUIET)
        for name in ("on_start", "_on_ending")
    )


def _is_counted(tracer: Tracer) -> bool:
    """Whether the SDK makes metrics of its own spans."""
    metrics = getattr(tracer, "_tracer_metrics", None)
    return metrics is not None and not type(metrics).__name__.startswith("NoOp")
