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
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, set_span_in_context

from ...records import Claimed
from ...times import MICRO
from ...version import VERSION
from . import conventions as words
from . import presence
from .attempt_span import OpenSpan, RemoteSpan
from .context import below, context_of, current_span, span_of, text_of
from .enqueue_span import EnqueueSpan, sign
from .guard import guarded

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, TracerProvider

    from ...events.kinds import Event
    from ...events.tracing import AttemptSpan, Enqueuing
    from ...records import BlockerRecord, Ending, NewJob
    from ...worker.attempt import Attempt
    from .metrics import Measures

Relation = Literal["link", "child"]
Relate = Callable[[str, str, int, int, float], Relation]

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
        self._open: WeakValueDictionary[tuple[int, int], OpenSpan] = WeakValueDictionary()
        self._common: dict[tuple[str, str], dict[str, Any]] = {}

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

    @guarded(None)
    def started(self, attempt: Attempt) -> AttemptSpan | None:
        if self._unmeasured:
            self._measure()
        if self._asleep:
            if not presence.has_tracers():
                return None
            self._asleep = False
        held = attempt.held
        span = self._begin(held, attempt.blockers, attempt.worker, attempt.waited, None)
        if span.recording:
            self._open[held[:2]] = span
        return span

    def joined(self, text: str | None) -> AttemptSpan:
        return RemoteSpan(text, self._keys)

    @guarded(None)
    def lost(self, ending: Ending, worker: str) -> None:
        held = ending.held
        waited = max(held.claimed_at - max(held.run_at, held.created_at), 0) / MICRO
        span = self._begin(held, (), worker, waited, held.claimed_at * 1000)
        span.end(time.time_ns(), str(ending.outcome), True, ending.error_type)

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
        span = self._open.get((getattr(event, "job", 0), getattr(event, "attempt", 0)))
        if span is None:
            yield
            return
        token = contexts.attach(span.context)
        try:
            yield
        finally:
            contexts.detach(token)

    # ---- inside

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
        waited: float,
        at: int | None,
    ) -> OpenSpan:
        creator, context = context_of(held.trace, self._keys)
        links: list[Link] | None = None
        parent = context
        if creator is not None:
            if self._is_child(held, waited):
                parent = below(creator, context)
            else:
                links = [Link(creator)]
        attributes = self._attributes(held.task, held.queue) | {
            words.ID: str(held.job_id),
            words.CONVERSATION: str(held.chain_id),
            words.ATTEMPT: held.attempt,
            words.POSITION: held.position,
            words.WORKER: worker,
            words.WAITED: waited,
        }
        if held.blockers:
            attributes[words.BLOCKERS] = held.blockers
            links = [*(links or ()), *_links(blockers, creator)]
        span = self._tracer.start_span(
            f"run {held.task}",
            parent,
            SpanKind.CONSUMER,
            attributes,
            links,
            at,
        )
        return OpenSpan(span, set_span_in_context(span, context), self._keys)

    def _attributes(self, task: str, queue: str) -> dict[str, Any]:
        found = self._common.get((task, queue))
        if found is None:
            if len(self._common) >= 1000:  # queues may be many
                self._common.clear()
            found = self._common[task, queue] = {
                words.SYSTEM: "towline",
                words.OPERATION: "run",
                words.OPERATION_TYPE: "process",
                words.DESTINATION: queue,
                words.TASK: task,
            }
        return found

    def _is_child(self, held: Claimed, waited: float) -> bool:
        if held.position:
            return held.position % words.CUT != 0
        relation = self._relation
        said = _asked(relation, held, waited) if callable(relation) else relation
        return said == "child"


@guarded("link")
def _asked(relate: Relate, held: Claimed, waited: float) -> str:
    return relate(held.task, held.queue, held.attempt, held.position, waited)


def _links(blockers: Sequence[BlockerRecord], creator: SpanContext | None) -> list[Link]:
    """One to each context on an edge, if it is another than the job's own."""
    found: dict[tuple[int, int], Link] = {}
    own = None if creator is None else (creator.trace_id, creator.span_id)
    for blocker in blockers:
        if (span := span_of(blocker.trace)) is not None:
            key = span.trace_id, span.span_id
            if key != own and key not in found:
                found[key] = Link(span)
                if len(found) == words.MOST_LINKS:
                    break
    return list(found.values())
