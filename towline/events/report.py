"""The events of an operation, published by the runner."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from ..model import type_of
from ..operation import Op
from ..records import Enqueued, JobRecord
from . import Events
from .kinds import ChainPruned, JobControlled, JobEnqueued, OperationEnded

CONTROL = frozenset({
    "cancel", "retry", "run_now", "complete", "fail", "delete", "pause", "resume", "bulk", "change",
    "rerun",
})  # fmt: skip
MOST_JOBS = 100  # whose ids are in an event


class Report:
    """One run of an operation, from its begin."""

    def __init__(self, events: Events, op: Op[Any], on: object) -> None:
        self._events = events
        self._op = op
        self._connection = "own" if on is None else "caller"
        self._began = time.perf_counter()

    def ended(self, answer: Any, error: BaseException | None = None) -> None:
        operation, wanted = self._op.name, self._events.wanted
        if OperationEnded.name in wanted:
            self._events.publish(
                OperationEnded(
                    operation=operation,
                    connection=self._connection,
                    error_type=None if error is None else type_of(error),
                    duration=time.perf_counter() - self._began,
                )
            )
        if error is not None:
            return
        if operation == "enqueue" and JobEnqueued.name in wanted:
            self._enqueued(answer)
        elif operation in CONTROL:
            self._controlled(answer)
        elif operation == "prune" and answer.chains:
            self._events.publish(ChainPruned(count=answer.chains))

    def _controlled(self, answer: Any) -> None:
        op = self._op
        one = answer if isinstance(answer, JobRecord) else None
        ids = [one.id] if one else answer if isinstance(answer, list) else ()
        self._events.publish(
            JobControlled(
                operation=op.name,
                connection=self._connection,
                count=_number(answer),
                jobs=tuple(ids[:MOST_JOBS]),
                queue=one.queue if one else op.queue,
                by=op.by,
            )
        )

    def _enqueued(self, answers: Sequence[Enqueued]) -> None:
        groups: dict[tuple[str, str, bool], list[int]] = defaultdict(list)
        for record, created in answers:
            groups[record.task, record.queue, created].append(record.id)
        for (task, queue, created), ids in groups.items():
            self._events.publish(
                JobEnqueued(
                    task=task,
                    queue=queue,
                    created=created,
                    connection=self._connection,
                    count=len(ids),
                    jobs=tuple(ids[:MOST_JOBS]),
                    duration=time.perf_counter() - self._began,
                )
            )


def _number(answer: Any) -> int:
    """How many jobs or chains were changed: those of a page, those that were deleted, or one."""
    if isinstance(answer, list):
        return len(answer)
    number: int = getattr(answer, "number", 1)
    return number
