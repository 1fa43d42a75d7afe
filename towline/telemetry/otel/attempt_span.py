"""The span of an attempt: begun where the handler runs, ended by the events' thread when its end is
written, with the time at which the handler ended."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry.trace import Status, StatusCode

from . import conventions as words
from .context import below, context_of, text_of
from .guard import guarded

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span


class OpenSpan:
    """A span in this process, and the context in which it is the current one."""

    __slots__ = ("__weakref__", "_context", "_keys", "_span", "_token", "recording")

    def __init__(self, span: Span, context: Context, keys: Collection[str]) -> None:
        self._span = span
        self._context = context
        self._keys = keys
        self._token: Token[Any] | None = None
        self.recording = span.is_recording()

    @property
    def text(self) -> str | None:
        return text_of(self._span.get_span_context(), self._context, self._keys)

    @property
    def context(self) -> Context:
        return self._context

    @guarded(None)
    def enter(self) -> None:
        self._token = contexts.attach(self._context)

    @guarded(None)
    def leave(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            contexts.detach(token)

    @guarded(None)
    def end(self, at: int, outcome: str, accepted: bool | None, error_type: str | None) -> None:
        span = self._span
        if not self.recording:
            return
        span.set_attribute(words.OUTCOME, outcome)
        if accepted is not None:
            span.set_attribute(words.ACCEPTED, accepted)
        if outcome in words.BAD:
            span.set_attribute(words.ERROR, error_type or outcome)
            span.set_status(Status(StatusCode.ERROR))
        span.end(at)


class RemoteSpan:
    """The span of an attempt that another process has begun, and will end."""

    __slots__ = ("_context", "_token", "recording", "text")

    def __init__(self, text: str | None, keys: Collection[str]) -> None:
        self.text = text
        self.recording = False
        span, context = context_of(text, keys)
        self._context = None if span is None else below(span, context)
        self._token: Token[Any] | None = None

    @guarded(None)
    def enter(self) -> None:
        if self._context is not None:
            self._token = contexts.attach(self._context)

    @guarded(None)
    def leave(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            contexts.detach(token)

    def end(self, at: int, outcome: str, accepted: bool | None, error_type: str | None) -> None:
        pass
