"""The spans of a worker's attempts: each ends when its attempt is written, or is known never to be.

A slot begins a span where the handler runs (`Attempt.span`). Ending it may take as long as an
exporter does, so the events' thread does that, behind the events of the attempt.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ..model import Outcome

if TYPE_CHECKING:
    from ..app import Towline
    from ..events.tracing import AttemptSpan
    from ..records import Ending
    from ..store.finish import Finished
    from ..store.lease import Swept
    from .attempt import Attempt, Key

# A span, when its handler ended by the monotonic clock, how, whether that was accepted, and what
# was raised.
End: TypeAlias = "tuple[AttemptSpan, float, Outcome, bool | None, str | None]"


class Spans:
    """The spans of one worker that have not ended."""

    def __init__(self, app: Towline) -> None:
        self._app = app
        self._events = app.runner.events
        self.open: dict[Key, tuple[AttemptSpan, float]] = {}  # and when the handler ended

    def over(self, attempt: Attempt, ending: Ending | None) -> None:
        """Its handler has ended; None: it has completed its job itself, in a transaction."""
        span = attempt.span
        if span is None or not span.recording or attempt.begun is None:
            return
        ended = time.monotonic() if attempt.ended is None else attempt.ended
        if ending is not None:
            self.open[attempt.key] = span, ended
        else:
            accepted = True if attempt.completed_inside else None
            self._end((span, ended, attempt.inside, accepted, None))

    def written(self, sent: Sequence[Ending], finished: Finished) -> None:
        """These endings were sent in a turn that is committed."""
        accepted, postponed = set(finished.accepted), set(finished.postponed)
        over: list[End] = []
        for ending in sent:
            id = ending.held.job_id
            if id not in postponed and (found := self.open.pop(ending.key, None)):
                over.append((*found, ending.outcome, id in accepted, ending.error_type))
        if over:
            self._events.call(partial(_end_all, over))

    def forget(self, key: Key) -> None:
        """Its ending is not this worker's to write."""
        if found := self.open.pop(key, None):
            self._end((*found, Outcome.LOST, False, None))

    def refused(self, attempt: Attempt, ending: Ending | None) -> None:
        """What its handler came to is not heard: the job was taken over, or ended from outside."""
        span = attempt.span
        if span is not None and span.recording and attempt.begun is not None:
            attempt.span = None
            outcome = Outcome.LOST if ending is None else ending.outcome
            error_type = None if ending is None else ending.error_type
            ended = time.monotonic() if attempt.ended is None else attempt.ended
            self._end((span, ended, outcome, False, error_type))

    def swept(self, swept: Swept) -> None:
        """Attempts whose workers can tell nothing any more."""
        tracing = self._app.tracing
        if tracing is not None:
            for ending, worker in swept.lost:
                self._events.call(partial(tracing.lost, ending, worker))

    def _end(self, end: End) -> None:
        self._events.call(partial(_end_all, [end]))


def _end_all(ends: Sequence[End]) -> None:
    """In the events' thread."""
    apart = time.time_ns() - time.monotonic_ns()
    for span, ended, outcome, accepted, error_type in ends:
        span.end(apart + round(ended * 1e9), str(outcome), accepted, error_type)
