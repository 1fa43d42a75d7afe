"""The span of an attempt: begun where the handler runs, ended by the events' thread when its end is
written, with the time at which the handler ended."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    NonRecordingSpan,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from . import conventions as words
from .context import below, context_of, text_of
from .guard import Trouble, guarded

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.trace import TraceState

# Under which a context has its span.
(SPAN,) = set_span_in_context(INVALID_SPAN, Context())
_trouble = Trouble()

# Spans that record, by their attempts: job << 32 | attempt.
Recording: TypeAlias = dict[int, "ref[Span]"]
Keys: TypeAlias = Collection[str]  # of baggage


class Current:
    """What can be made the current span, and back. The context for it is made then: until the end
    is written there may be thousands of spans, and each object of them is one to collect."""

    _token: Token[Any] | None = None

    def around(self) -> Context | None:
        """A context in which it is the current one."""
        raise NotImplementedError

    # Guarded by hand, as each attempt passes here twice.

    def enter(self) -> None:
        try:
            if (context := self.around()) is not None:
                self._token = contexts.attach(context)
        except Exception as error:
            _trouble.say(error)

    def leave(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:
                contexts.detach(token)
            except Exception as error:
                _trouble.say(error)


def with_span(span: Span, base: Context) -> Context:
    """What `set_span_in_context` makes, in one step."""
    return Context({**base, SPAN: span})


def last_words(outcome: str, accepted: bool | None, error_type: str | None) -> dict[str, Any]:
    """What is known only when its end is written."""
    more: dict[str, Any] = {words.OUTCOME: outcome}
    if accepted is not None:
        more[words.ACCEPTED] = accepted
    if outcome in words.BAD:
        more[words.ERROR] = error_type or outcome
    return more


def finish(span: Span, at: int, outcome: str, more: dict[str, Any]) -> None:
    """End a span as OpenTelemetry's API has it."""
    span.set_attributes(more)
    if outcome in words.BAD:
        span.set_status(Status(StatusCode.ERROR))
    span.end(at)


class OpenSpan(Current):
    """Any span in this process, in the context below which it runs. While this is there, the span
    is found by its attempt."""

    def __init__(self, span: Span, base: Context, keys: Keys, all: Recording, key: int) -> None:
        self._span = span
        self._base = base
        self._keys = keys
        self._all = all
        self._key = key
        self.ended = 0.0
        self.recording = span.is_recording()
        if self.recording:
            all[key] = ref(span)

    def __del__(self) -> None:
        self._all.pop(self._key, None)

    @property
    def text(self) -> str | None:
        return text_of(self._span.get_span_context(), self._base, self._keys)

    def around(self) -> Context:
        return with_span(self._span, self._base)

    @guarded(None)
    def over(self, at: int, outcome: str, accepted: bool | None, error_type: str | None) -> None:
        if self.recording:
            finish(self._span, at, outcome, last_words(outcome, accepted, error_type))


class DroppedSpan(Current, NonRecordingSpan):
    """One that a sampler does not want: what runs below it is not wanted either. Nearly nobody asks
    for its context, which is made when somebody does."""

    recording = False
    ended = 0.0

    def __init__(
        self,
        trace: int,
        id: int,
        flags: TraceFlags,
        state: TraceState | None,
        base: Context,
        keys: Keys,
    ) -> None:
        self._trace = trace
        self._id = id
        self._flags = flags
        self._state = state
        self._base = base
        self._keys = keys

    def get_span_context(self) -> SpanContext:
        return SpanContext(self._trace, self._id, False, self._flags, self._state)

    def __repr__(self) -> str:
        return f"NonRecordingSpan({self.get_span_context()!r})"

    @property
    def text(self) -> str | None:
        return text_of(self.get_span_context(), self._base, self._keys)

    def around(self) -> Context:
        return with_span(self, self._base)

    def over(self, at: int, outcome: str, accepted: bool | None, error_type: str | None) -> None:
        pass


class RemoteSpan(Current):
    """The span of an attempt that another process has begun, and will end."""

    recording = False
    ended = 0.0

    def __init__(self, text: str | None, keys: Keys) -> None:
        self.text = text
        span, context = context_of(text, keys)
        self._around = None if span is None else below(span, context)

    def around(self) -> Context | None:
        return self._around

    def over(self, at: int, outcome: str, accepted: bool | None, error_type: str | None) -> None:
        pass
