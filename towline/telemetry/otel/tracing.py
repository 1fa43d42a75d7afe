"""Tracing by OpenTelemetry: what an app stores and runs becomes spans.

enqueue {task}   PRODUCER, the operation; its context is stored with the job
run {task}       CONSUMER, the handler's time; linked to what created the job, or below it

A continuation is created by the attempt before it and is always below that, so that a chain is one
trace; at every hundredth position another begins, with a link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, set_span_in_context

from ...records import Claimed
from ...version import VERSION
from . import conventions as words
from . import presence
from .attempt_span import OpenSpan, Recording, RemoteSpan
from .context import below, context_of, current_span, text_of
from .enqueue_span import EnqueueSpan, sign
from .guard import Trouble, guarded
from .story import Attributes, Story, common, waited

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from ...events.kinds import Event
    from ...events.tracing import AttemptSpan, Enqueuing
    from ...records import BlockerRecord, Ending, NewJob
    from ...worker.attempt import Attempt
    from .metrics import Measures
    from .shortcut import Shortcut

Relation = Literal["link", "child"]
Relate = Callable[[str, str, int, int, float], Relation]

# Of a task's spans: their name, and the attributes that all of them have.
Place: TypeAlias = tuple[str, Attributes]

NOTHING = Context()
FLUSH = 1000  # milliseconds in which a process that ends sends what waits


class SpanTracing:
    """Makes the spans of one app in one process."""

    def __init__(
        self,
        relation: Relation | Relate,
        keys: Collection[str],
        tracers: TracerProvider | None,
        measures: Measures | None,
    ) -> None:
        self._relation = relation
        self._keys = tuple(keys)
        self._tracers = tracers
        self.measures = measures
        self._asleep = tracers is None  # until there is somebody to make spans for
        self._unmeasured = measures is not None
        self._tracer = trace.get_tracer(words.SCOPE, VERSION, tracers, words.SCHEMA)
        self._open: Recording = {}
        self._trouble = Trouble()
        self._shortcut: Shortcut | None = None if tracers is None else _shortcut_of(self._tracer)
        self._places: dict[tuple[str, str], Place] = {}

    # ---- what the app calls

    def enqueuing(self, jobs: Sequence[NewJob]) -> Enqueuing:
        if self._unmeasured:
            self._measure()
        return EnqueueSpan(self._tracer, jobs, self._keys)

    @guarded(None)
    def here(self) -> str | None:
        return text_of(current_span(), None, self._keys)

    @guarded(None)
    def continues(self, job: NewJob, span: AttemptSpan | None = None) -> None:
        sign([job], self.here() if span is None else span.text)

    # ---- what its workers and their processes call

    def started(self, attempt: Attempt) -> AttemptSpan | None:
        try:
            if self._unmeasured:
                self._measure()
            if self._asleep:
                if not presence.has_tracers():
                    return None
                self._wake()
            held, began = attempt.held, attempt.started_at
            began = attempt.now if began is None else began
            return self._begin(held, attempt.blockers, attempt.worker, began, None)
        except Exception as error:  # guarded by hand, as each attempt passes here
            self._trouble.say(error)
            return None

    def joined(self, text: str | None) -> AttemptSpan:
        return RemoteSpan(text, self._keys)

    @guarded(None)
    def lost(self, ending: Ending, worker: str) -> None:
        held = ending.held
        span = self._begin(held, (), worker, held.claimed_at, held.claimed_at * 1000)
        span.over(time.time_ns(), str(ending.outcome), True, ending.error_type)

    @guarded(None)
    def flush(self) -> None:
        tracers = trace.get_tracer_provider() if self._tracers is None else self._tracers
        flush = getattr(tracers, "force_flush", None)
        if flush is not None:
            flush(FLUSH)

    # ---- what the events' thread calls

    @contextmanager
    def around(self, event: Event) -> Iterator[None]:
        """What is logged of an attempt is logged as its span's."""
        found = self._open.get(getattr(event, "job", 0) << 32 | getattr(event, "attempt", 0))
        span = None if found is None else found()
        if span is None:
            yield
            return
        token = contexts.attach(set_span_in_context(span, NOTHING))
        try:
            yield
        finally:
            contexts.detach(token)

    # ---- inside

    def _wake(self) -> None:
        """There is somebody to make spans for, by the global provider."""
        self._asleep = False
        self._tracer = trace.get_tracer(words.SCOPE, VERSION, None, words.SCHEMA)
        self._shortcut = _shortcut_of(self._tracer)

    @guarded(None)
    def _measure(self) -> None:
        """Begin with metrics when the application has set up who collects them."""
        if self.measures is not None and (self.measures.begun or presence.has_meters()):
            self._unmeasured = False
            self.measures.begin()

    def _begin(
        self,
        held: Claimed,
        blockers: Sequence[BlockerRecord],
        worker: str,
        began: int,
        at: int | None,
    ) -> AttemptSpan:
        """`began`: by the database's clock; `at`: by this machine's, if it was not just now."""
        text, keys = held.trace, self._keys
        base, parent = NOTHING, None
        if text:
            child = self._is_child(held, began)
            if child or (keys and text[0] == "{"):
                creator, base = context_of(text, keys)
                parent = creator if child else None
        shortcut, trace = self._shortcut, 0
        if shortcut is not None and not shortcut.is_open():
            shortcut = None
        if shortcut is not None:
            trace = shortcut.trace(parent)
            dropped = shortcut.dropped(trace, parent, base, keys)
            if dropped is not None:
                return dropped
        place = self._places.get((held.task, held.queue)) or self._place(held.task, held.queue)
        story = Story(*place, held, blockers, worker, began, parent is None)
        key = held.job_id << 32 | held.attempt
        if shortcut is not None:
            return shortcut.start(trace, story, parent, base, at, keys, self._open, key)
        attributes, links = story.told()
        above = base if parent is None else below(parent, base)
        span = self._tracer.start_span(story.name, above, SpanKind.CONSUMER, attributes, links, at)
        return OpenSpan(span, base, keys, self._open, key)

    def _place(self, task: str, queue: str) -> Place:
        if len(self._places) >= 1000:  # queues may be many
            self._places.clear()
        found = self._places[task, queue] = f"run {task}", common(task, queue)
        return found

    def _is_child(self, held: Claimed, began: int) -> bool:
        if held.position:
            return held.position % words.CUT != 0
        relation = self._relation
        if callable(relation):
            return _asked(relation, held, waited(held, began)) == "child"
        return relation == "child"


@guarded("link")
def _asked(relate: Relate, held: Claimed, waited: float) -> str:
    return relate(held.task, held.queue, held.attempt, held.position, waited)


def _shortcut_of(tracer: object) -> Shortcut | None:
    """Where the SDK is there."""
    if not type(tracer).__module__.startswith("opentelemetry.sdk."):
        return None
    try:
        from .shortcut import shortcut_of
    except ImportError:
        return None
    return shortcut_of(tracer)
