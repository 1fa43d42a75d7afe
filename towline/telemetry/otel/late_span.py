"""A span of the SDK that is built when somebody touches it, and else only what an exporter reads.

Nearly all handlers leave their span alone. To build one takes three times what it takes to write
down what it will say; so it is written down, and whoever sets an attribute, adds an event or reads
anything of it finds the SDK's own span, made at that moment with the times and names of its begin.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from weakref import ref

from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from .attempt_span import Current, finish, last_words, with_span
from .context import below, text_of
from .conventions import BAD
from .guard import guarded

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.trace import TraceFlags, TraceState

    from .attempt_span import Keys, Recording
    from .story import Story, Told

WELL, FAILED = Status(StatusCode.UNSET), Status(StatusCode.ERROR)


class LateSpan(Current, Span):
    """Until it is whole it has none of what the SDK's constructor sets: to ask for any of that
    makes it whole. While it records, it is found by its attempt."""

    recording = True
    ended = 0.0

    def __init__(
        self,
        tracer: Tracer,
        story: Story,
        told: Told | None,
        trace: int,
        id: int,
        flags: TraceFlags,
        state: TraceState | None,
        parent: SpanContext | None,
        base: Context,
        keys: Keys,
        at: int,
    ) -> None:
        self.__is_late = True
        self.__over = False
        self.__tracer = tracer
        self.__story = story
        self.__told = told
        self.__trace = trace
        self.__id = id
        self.__flags = flags
        self.__state = state
        self.__parent = parent
        self.__base = base
        self.__keys = keys
        self.__at = at
        self.__all: Recording | None = None

    def is_found_in(self, all: Recording, key: int) -> None:
        self.__all, self.__key = all, key
        all[key] = ref(self)

    def __del__(self) -> None:
        if self.__all is not None:
            self.__all.pop(self.__key, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.make_whole()
        return object.__getattribute__(self, name)

    def get_span_context(self) -> SpanContext:
        return SpanContext(self.__trace, self.__id, False, self.__flags, self.__state)

    @property
    def text(self) -> str | None:
        return text_of(self.get_span_context(), self.__base, self.__keys)

    def around(self) -> Context:
        return with_span(self, self.__base)

    def is_recording(self) -> bool:
        return not self.__over if self.__is_late else super().is_recording()

    @guarded(None)
    def over(self, at: int, outcome: str, accepted: bool | None, error_type: str | None) -> None:
        """End it, as whole as it is."""
        more = last_words(outcome, accepted, error_type)
        bad = outcome in BAD
        with _making:
            late = self.__is_late and not self.__over
            if late:
                self.__over, self.__until, self.__bad = True, at, bad
        if not late:
            finish(self, at, outcome, more)
            return
        story, tracer = self.__story, self.__tracer
        attributes, links = self.__told or story.told()
        attributes.update(more)
        self.__told = attributes, links
        tracer.span_processor.on_end(
            ReadableSpan(
                story.name, self.get_span_context(), self.__parent, tracer.resource, attributes,
                (), links, SpanKind.CONSUMER, tracer.instrumentation_info,
                FAILED if bad else WELL, self.__at, at, tracer._instrumentation_scope,
            )
        )  # fmt: skip

    def make_whole(self) -> None:
        with _making:
            if not self.__is_late:
                return
            tracer, over = self.__tracer, self.__over
            attributes, links = self.__told or self.__story.told()
            whole = Whole(
                self.__story.name,
                self.get_span_context(),
                self.__parent,
                tracer.sampler,
                resource=tracer.resource,
                attributes=attributes,
                links=links,
                kind=SpanKind.CONSUMER,
                span_processor=SpanProcessor(),  # they are told of this one, if it is not over
                instrumentation_info=tracer.instrumentation_info,
                limits=tracer._span_limits,
                instrumentation_scope=tracer._instrumentation_scope,
            )
            above = self.__base if self.__parent is None else below(self.__parent, self.__base)
            whole.start(self.__at, above)
            if over:
                if self.__bad:
                    whole.set_status(FAILED)
                whole.end(self.__until)
            else:
                whole._span_processor = tracer.span_processor
            # At once: another thread finds none of it, and waits here, or all.
            vars(self).update(vars(whole))
            self.__is_late = False
            if not over:
                tracer.span_processor.on_start(self, above)


class Whole(Span):
    """A span as the SDK makes one: by its own constructor only a subclass may be made."""


# One for all: to make spans whole is rare, and a lock for each is one more object to collect.
_making = threading.RLock()


def _after_in_child() -> None:
    global _making
    _making = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
