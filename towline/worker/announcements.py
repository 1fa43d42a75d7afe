"""The events of a worker, built only while somebody has subscribed to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..events import COMPLETED, Events
from ..events.kinds import (
    AttemptAbandoned,
    AttemptEnded,
    AttemptReturned,
    AttemptStopping,
    TurnTaken,
    WorkerChanged,
)
from ..model import Claimed, Ending, Outcome
from ..times import MICRO

if TYPE_CHECKING:
    from ..store.finish import Finished
    from .attempt import Attempt

WELL = (Outcome.COMPLETED, Outcome.CONTINUED)
FAILED = (Outcome.FAILED, Outcome.TIMEOUT, Outcome.LOST)


class Announcements:
    """What one worker publishes, after the commits that it tells of."""

    def __init__(self, events: Events, worker: str, crash_limit: int, error_text: bool) -> None:
        self._events = events
        self._worker = worker
        self._error_text = error_text
        self.failed = 0  # attempts
        self._crash_limit = crash_limit
        self._ended: dict[tuple[int, int], AttemptEnded] = {}  # and not written yet

    # ---- attempts

    def ended(self, attempt: Attempt, outcome: Outcome, ending: Ending | None = None) -> None:
        """An attempt is over. It is told of once its ending is written; at once when it has
        completed its job itself, in a transaction of its own or of the caller's."""
        if (COMPLETED if outcome in WELL else AttemptEnded.name) not in self._events.wanted:
            return
        self.failed += outcome in FAILED
        held = attempt.held
        retry_in = None if ending is None or ending.delay is None else ending.delay / MICRO
        event = AttemptEnded(
            task=held.task,
            queue=held.queue,
            slot=attempt.task.slots,
            outcome=str(outcome),
            final=self._is_final(held, outcome, retry_in),
            accepted=True if attempt.completed_inside else None,
            error_type=None if ending is None else ending.error_type,
            job=held.job_id,
            chain=held.chain_id,
            position=held.position,
            attempt=held.attempt,
            worker=self._worker,
            duration=attempt.lasted,
            retry_in=retry_in,
            error=ending.error if ending is not None and self._error_text else None,
        )
        if ending is None:
            self._events.publish(event)
        else:
            self._ended[attempt.key] = event

    def written(self, sent: Sequence[Ending], finished: Finished) -> None:
        """These endings were sent in a turn that is committed."""
        if not self._ended:
            return
        accepted = set(finished.accepted)
        postponed = set(finished.postponed)
        for ending in sent:
            if ending.held.job_id not in postponed and ending.key in self._ended:
                event = self._ended.pop(ending.key)
                self._events.publish(replace(event, accepted=ending.held.job_id in accepted))

    def forget(self, key: tuple[int, int]) -> None:
        """Its ending is not this worker's to write."""
        self._ended.pop(key, None)

    def _is_final(self, held: Claimed, outcome: Outcome, retry_in: float | None) -> bool:
        """Whether the job is over with this attempt."""
        if outcome is Outcome.LOST:
            return retry_in is None or held.lost + 1 >= self._crash_limit
        if outcome in FAILED:
            return retry_in is None or held.used + 1 >= held.max_attempts
        return outcome in (*WELL, Outcome.CANCELLED)

    # ---- turns, the worker itself

    def turn_taken(self, finished: Finished, claimed: int, duration: float) -> None:
        if TurnTaken.name in self._events.wanted:
            self._events.publish(
                TurnTaken(
                    finished=len(finished.accepted),
                    refused=len(finished.refused),
                    postponed=len(finished.postponed),
                    claimed=claimed,
                    duration=duration,
                )
            )

    def changed(self, state: str, text: str, error: BaseException | None = None) -> None:
        self._events.publish(
            WorkerChanged(state=state, worker=self._worker, text=text, error=error)
        )


def stopping(attempt: Attempt, why: str) -> AttemptStopping:
    held = attempt.held
    return AttemptStopping(task=held.task, why=why, job=held.job_id, attempt=held.attempt)


def abandoned(attempt: Attempt) -> AttemptAbandoned:
    held = attempt.held
    return AttemptAbandoned(task=held.task, job=held.job_id, attempt=held.attempt)


def returned(held: Claimed, why: str, error: Exception) -> AttemptReturned:
    return AttemptReturned(
        task=held.task, why=why, job=held.job_id, attempt=held.attempt, error=error
    )
