"""The spans of a worker's attempts: each ends when its attempt is written, or is known never to be.

A slot begins a span where the handler runs (`Attempt.span`). Ending it may take as long as an
exporter does, so the events' thread does that, behind the events of the attempt.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..model import Outcome

if TYPE_CHECKING:
    from ..app import Towline
    from ..events.tracing import AttemptSpan
    from ..records import Ending
    from ..store.finish import Finished
    from ..store.lease import Swept
    from .attempt import Attempt, Key


class Spans:
    """The spans of one worker that have not ended."""

    def __init__(self, app: Towline) -> None:
        self._app = app
        self._events = app.runner.events
        self.open: dict[Key, AttemptSpan] = {}

    def over(self, attempt: Attempt, ending: Ending | None) -> None:
        """Its handler has ended; None: it has completed its job itself, in a transaction."""
        span = attempt.span
        if span is None or not span.recording or attempt.begun is None:
            return
        span.ended = _when(attempt)
        if ending is not None:
            self.open[attempt.key] = span
        else:
            accepted = True if attempt.completed_inside else None
            self._end(span, attempt.inside, accepted, None)

    def written(self, sent: Sequence[Ending], finished: Finished) -> None:
        """These endings were sent in a turn that is committed."""
        postponed = set(finished.postponed)
        spans: deque[AttemptSpan] = deque()
        endings: list[Ending] = []
        for ending in sent:
            if ending.held.job_id not in postponed and (span := self.open.pop(ending.key, None)):
                spans.append(span)
                endings.append(ending)
        if spans:
            self._events.call(partial(_end_all, spans, endings, set(finished.accepted)))

    def forget(self, key: Key) -> None:
        """Its ending is not this worker's to write."""
        if span := self.open.pop(key, None):
            self._end(span, Outcome.LOST, False, None)

    def refused(self, attempt: Attempt, ending: Ending | None) -> None:
        """What its handler came to is not heard: the job was taken over, or ended from outside."""
        span = attempt.span
        if span is not None and span.recording and attempt.begun is not None:
            attempt.span = None
            outcome = Outcome.LOST if ending is None else ending.outcome
            error_type = None if ending is None else ending.error_type
            span.ended = _when(attempt)
            self._end(span, outcome, False, error_type)

    def swept(self, swept: Swept) -> None:
        """Attempts whose workers can tell nothing any more."""
        tracing = self._app.tracing
        if tracing is not None:
            for ending, worker in swept.lost:
                self._events.call(partial(tracing.lost, ending, worker))

    def _end(
        self, span: AttemptSpan, outcome: Outcome, accepted: bool | None, error_type: str | None
    ) -> None:
        self._events.call(partial(_end_one, span, outcome, accepted, error_type))


def _when(attempt: Attempt) -> float:
    """Its handler ended, by the monotonic clock."""
    return time.monotonic() if attempt.ended is None else attempt.ended


# ---- in the events' thread


def _end_all(spans: deque[AttemptSpan], endings: Sequence[Ending], accepted: set[int]) -> None:
    apart = _apart()
    for ending in endings:
        span = spans.popleft()  # it need not wait for the others to be freed
        at = apart + round(span.ended * 1e9)
        accept = ending.held.job_id in accepted
        span.over(at, str(ending.outcome), accept, ending.error_type)


def _end_one(
    span: AttemptSpan, outcome: Outcome, accepted: bool | None, error_type: str | None
) -> None:
    span.over(_apart() + round(span.ended * 1e9), str(outcome), accepted, error_type)


def _apart() -> int:
    return time.time_ns() - time.monotonic_ns()
