"""The span of a call to enqueue, in the caller's thread; its context is stored with the jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import context as contexts
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer, set_span_in_context

from ...model import type_of
from . import conventions as words
from .context import current_span, span_of, text_of
from .guard import guarded

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.trace import Span

    from ...records import Enqueued, NewJob


class EnqueueSpan:
    """A block in which jobs are stored."""

    def __init__(self, tracer: Tracer, jobs: Sequence[NewJob], keys: Collection[str]) -> None:
        self._tracer = tracer
        self._jobs = jobs
        self._keys = keys
        self._span: Span | None = None
        self._token: Token[Any] | None = None

    def __enter__(self) -> EnqueueSpan:
        self._begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave()
        self._end(error)

    @guarded(None)
    def _begin(self) -> None:
        jobs = self._jobs
        tasks, queues = {job.task for job in jobs}, {job.queue for job in jobs}
        attributes: dict[str, Any] = {
            words.SYSTEM: "towline", words.OPERATION: "enqueue", words.OPERATION_TYPE: "send",
        }  # fmt: skip
        name = "enqueue"
        if len(queues) == 1:
            attributes[words.DESTINATION] = name = next(iter(queues))
            name = f"enqueue {name}"
        if len(tasks) == 1:
            attributes[words.TASK] = name = next(iter(tasks))
            name = f"enqueue {name}"
        if len(jobs) != 1:
            attributes[words.BATCH_COUNT] = len(jobs)
        self._span = self._tracer.start_span(name, kind=SpanKind.PRODUCER, attributes=attributes)
        creator = self._span.get_span_context()
        if not creator.is_valid:  # nobody makes spans here, but there may be a context to pass on
            creator = current_span()
        sign(jobs, text_of(creator, None, self._keys))
        self._token = contexts.attach(set_span_in_context(self._span))

    @guarded(None)
    def stored(self, answers: Sequence[Enqueued]) -> None:
        """How they were stored: under which ids, or not, since there was one already."""
        span = self._span
        if span is None or not span.is_recording():
            return
        if len(answers) == 1:
            record, created = answers[0]
            span.set_attribute(words.ID, str(record.id))
            span.set_attribute(words.CONVERSATION, str(record.chain_id))
            span.set_attribute(words.CREATED, created)
        elif not any(answer.created for answer in answers):
            span.set_attribute(words.CREATED, False)
        met = [answer.record for answer in answers if not answer.created][: words.MOST_LINKS]
        for record in met:
            if (creator := span_of(record.trace)) is not None:
                span.add_link(creator)

    @guarded(None)
    def _leave(self) -> None:
        if self._token is not None:
            contexts.detach(self._token)

    @guarded(None)
    def _end(self, error: BaseException | None) -> None:
        if self._span is None:
            return
        if error is not None and self._span.is_recording():
            self._span.set_attribute(words.ERROR, type_of(error))
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def sign(jobs: Sequence[NewJob], text: str | None) -> None:
    """Say on jobs, what they bring along and what they wait for in the same batch, who made them;
    what the caller has said stays."""
    if text is None:
        return
    for job in jobs:
        if job.trace is None:
            job.trace = text
        for blocker in job.blockers:
            if blocker.trace is None and blocker.index is not None:
                blocker.trace = text
        if job.children:
            sign(job.children, text)
