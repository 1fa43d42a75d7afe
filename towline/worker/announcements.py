"""The events of a worker, built only while somebody has subscribed to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..events import COMPLETED, EACH
from ..events.kinds import (
    AttemptAbandoned,
    AttemptEnded,
    AttemptReturned,
    AttemptStopping,
    TurnTaken,
    WakeChanged,
    WorkerChanged,
)
from ..model import Outcome, type_of
from ..records import Claimed, Ending
from ..secret import without
from ..times import MICRO

if TYPE_CHECKING:
    from ..app import Towline
    from ..events.tally import Over
    from ..store.finish import Finished
    from ..store.turn import Turn
    from .attempt import Attempt
    from .settings import Settings

WELL = (Outcome.COMPLETED, Outcome.CONTINUED)
FAILED = (Outcome.FAILED, Outcome.TIMEOUT, Outcome.LOST)


class Announcements:
    """What one worker publishes, after the commits that it tells of."""

    def __init__(self, app: Towline, settings: Settings) -> None:
        self._events = app.runner.events
        self._settings = settings
        self._worker = settings.name
        self._error_text = settings.error_text
        self.failed = 0  # attempts
        self._crash_limit = app.runner.store.crash_limit
        self.untold: dict[tuple[int, int], Attempt] = {}  # ended, and not written yet

    # ---- attempts

    def ended(self, attempt: Attempt, outcome: Outcome, ending: Ending | None = None) -> None:
        """An attempt is over. It is told of once its ending is written; at once when it has
        completed its job itself, in a transaction of its own or of the caller's."""
        if (COMPLETED if outcome in WELL else AttemptEnded.name) not in self._events.wanted:
            return
        self.failed += outcome in FAILED
        if ending is None:
            accepted = True if attempt.completed_inside else None
            if outcome not in WELL or EACH in self._events.wanted:
                self._events.publish(self._event(attempt, outcome, None, accepted))
            if self._events.over is not None:
                self._events.over.add([_row(attempt, outcome, accepted, None)], 1)
        else:
            self.untold[attempt.key] = attempt

    def written(self, sent: Sequence[Ending], finished: Finished) -> None:
        """These endings were sent in a turn that is committed."""
        accepted = set(finished.accepted)
        postponed = set(finished.postponed)
        each, tally = EACH in self._events.wanted, self._events.over
        told: list[AttemptEnded] = []
        rows: list[Over] = []
        for ending in sent:
            job, outcome = ending.held.job_id, ending.outcome
            attempt = None if job in postponed else self.untold.pop(ending.key, None)
            if attempt is None:
                continue
            if tally is not None:
                rows.append(_row(attempt, outcome, job in accepted, ending.error_type))
            if each or outcome not in WELL:
                told.append(self._event(attempt, outcome, ending, job in accepted))
        self._events.publish_all(told)
        if tally is not None and rows:
            tally.add(rows, len(rows))

    def _event(
        self, attempt: Attempt, outcome: Outcome, ending: Ending | None, accepted: bool | None
    ) -> AttemptEnded:
        held = attempt.held
        retry_in = None if ending is None or ending.delay is None else ending.delay / MICRO
        final = self._is_final(held, outcome, retry_in)
        return AttemptEnded(
            task=held.task,
            queue=held.queue,
            slot=attempt.task.slots,
            outcome=str(outcome),
            final=final,
            accepted=accepted,
            error_type=None if ending is None else ending.error_type,
            job=held.job_id,
            chain=held.chain_id,
            position=held.position,
            attempt=held.attempt,
            worker=self._worker,
            waited=attempt.waited,
            duration=attempt.lasted,
            retry_in=None if final else retry_in,
            error=None if ending is None else self._told(attempt, ending.error),
        )

    def _told(self, attempt: Attempt, error: str | None) -> str | None:
        """What an error says, if it is told at all, without what it repeats of secret arguments."""
        if error is None or not self._error_text:
            return None
        secrets = attempt.secrets()
        return None if secrets is None else without(error, secrets)

    def forget(self, key: tuple[int, int]) -> None:
        """Its ending is not this worker's to write."""
        self.untold.pop(key, None)

    def _is_final(self, held: Claimed, outcome: Outcome, retry_in: float | None) -> bool:
        """Whether the job is over with this attempt."""
        if outcome is Outcome.COMPLETED:
            return True
        if outcome is Outcome.LOST:
            return retry_in is None or held.lost + 1 >= self._crash_limit
        if outcome in FAILED:
            return retry_in is None or held.used + 1 >= held.max_attempts
        return outcome in (*WELL, Outcome.CANCELLED)

    # ---- turns, the worker itself

    def turn_taken(self, turn: Turn, duration: float) -> None:
        finished = turn.finished
        self._events.publish(
            TurnTaken(
                finished=len(finished.accepted),
                refused=len(finished.refused),
                postponed=len(finished.postponed),
                claimed=len(turn.claimed),
                promoted=turn.promoted,
                duration=duration,
            )
        )

    def changed(
        self, state: str, text: str, error: BaseException | None = None, *, traced: bool = True
    ) -> None:
        """`traced`: the log shows where the error came from; else the text has said enough."""
        self._events.publish(
            WorkerChanged(
                state=state,
                error_type=None if error is None else type_of(error),
                worker=self._worker,
                queues=self._settings.queues,
                concurrency=self._settings.concurrency,
                text=text,
                error=error if traced else None,
            )
        )

    def wake_changed(self, wake: str, state: str) -> None:
        self._events.publish(WakeChanged(wake=wake, state=state))


def _row(attempt: Attempt, outcome: Outcome, accepted: bool | None, error_type: str | None) -> Over:
    """What metrics count of it."""
    held = attempt.held
    return (
        held.task, held.queue, outcome, accepted, error_type, attempt.waited, attempt.lasted,
        attempt.span,
    )  # fmt: skip


def stopping(attempt: Attempt, why: str) -> AttemptStopping:
    held = attempt.held
    return AttemptStopping(task=held.task, why=why, job=held.job_id, attempt=held.attempt)


def abandoned(attempt: Attempt) -> AttemptAbandoned:
    held = attempt.held
    return AttemptAbandoned(task=held.task, job=held.job_id, attempt=held.attempt)


def returned(held: Claimed, why: str, error: Exception) -> AttemptReturned:
    return AttemptReturned(
        task=held.task, why=why, error_type=type_of(error), job=held.job_id, attempt=held.attempt,
        error=error,
    )  # fmt: skip
