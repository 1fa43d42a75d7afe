"""The ending of an attempt: what its handler returned or raised means this, here and nowhere else.

a value                   completed, unless it cannot be stored: then failed, and not run again
task.then(…)              continued
Snooze, Cancel, Fail      as they say, returned or raised
Retry, any exception      failed, to be tried again after its back-off
too late, asked to stop   timeout, released
"""

from __future__ import annotations

import logging
import os.path
import random
import traceback
from typing import TYPE_CHECKING, Any

from ..errors import InvalidSetting, OutputError, PayloadTooLarge
from ..model import Outcome, type_of
from ..records import Ending
from ..store.finish import lost_delay
from ..task import Next
from ..task.batch import next_job
from ..task.retry import Cancel, Fail, Signal, Snooze, next_try
from ..times import MICRO

if TYPE_CHECKING:
    from .attempt import Attempt

MOST_ERROR = 64 * 1024  # characters of an error that are kept
COMPLETED, TIMEOUT = Outcome.COMPLETED, Outcome.TIMEOUT  # asked of every attempt
UNSTORABLE = (OutputError, PayloadTooLarge, InvalidSetting)
MISFIT_DELAY = 30 * MICRO  # at least, before arguments that do not fit are tried again
MOST_SET_BACK = 20  # times that a job is tried again because its transaction met another
# Files whose frames a traceback does without: they stand around every handler.
_FILES = ("attempt", "chunks", "middleware")
_AROUND = [os.path.join(os.path.dirname(__file__), f"{n}.py") for n in _FILES]

log = logging.getLogger("towline.worker")


# ---- by what the handler did; None when there is nothing to record


def of_value(attempt: Attempt, value: Any) -> Ending | None:
    """What a handler's return value means."""
    if attempt.completed_inside:
        return None
    if isinstance(value, Signal):
        return of_error(attempt, value)
    if attempt.caller_commits:
        # Fenced off if that transaction was committed, as it should have been.
        return _ending(
            attempt,
            Outcome.FAILED,
            error="the job was completed in a transaction that was not committed",
            delay=_delay(attempt, RuntimeError()),
        )
    if attempt.stopped_for is TIMEOUT:
        return timed_out(attempt)
    try:
        return completed(attempt, value)
    except UNSTORABLE as error:
        return of_error(attempt, error)


def of_error(attempt: Attempt, error: BaseException) -> Ending | None:
    """What an exception of a handler means."""
    if attempt.on_error is not None:
        attempt.on_error(error)
    if attempt.completed_inside:
        log.warning("%s raised after it had completed its job: %r", attempt, error)
        return None
    if error is attempt.unstorable:
        # The work is done: running it again would only do it twice.
        text = f"{type(error).__name__}: {error}"
        return _ending(attempt, Outcome.FAILED, error=text, error_type=type_of(error))
    if isinstance(error, Snooze):
        return _ending(attempt, Outcome.SNOOZED, delay=error.delay, rests=error.lane)
    if isinstance(error, Cancel):
        return _ending(attempt, Outcome.CANCELLED, error=reason_of(error))
    if isinstance(error, Fail):
        reason = reason_of(error)
        return _ending(attempt, Outcome.FAILED, error=reason, error_type=type_of(error))
    if attempt.stopped_for is Outcome.TIMEOUT:
        return timed_out(attempt, error)
    if attempt.stopped_for is Outcome.RELEASED:
        return released(attempt)
    if attempt.set_back < MOST_SET_BACK:
        if attempt.app.runner.engine.met_another(error):
            return _snoozed(attempt, 0.01, 0.2)
        if error is attempt.not_at_fault:
            return _snoozed(attempt, 0.5, 2.0)
    return _ending(
        attempt,
        Outcome.FAILED,
        error=describe(error),
        delay=_delay(attempt, error),
        error_type=type_of(error),
    )


def unreadable(attempt: Attempt, error: BaseException, problem: BaseException) -> Ending:
    """What an exception means that raises another when it is looked at."""
    text = f"{type(error).__name__} (cannot be looked at: {type(problem).__name__})"
    delay = _delay(attempt, RuntimeError())
    return _ending(attempt, Outcome.FAILED, error=text, delay=delay)


def completed(attempt: Attempt, value: Any) -> Ending:
    """The end of the job with this value; raises what says why it cannot be stored."""
    try:
        if isinstance(value, Next):
            following = next_job(value)
            attempt.app.refuse_too_heavy(following, attempt.held)
            if attempt.app.tracing is not None:
                attempt.app.tracing.continues(following, attempt.span)
            return _ending(attempt, Outcome.CONTINUED, next=following)
        limit = attempt.app.settings.payload_limit
        text = attempt.task.signature.encode_output(value, limit=limit)
    except UNSTORABLE as error:
        attempt.unstorable = error
        raise
    return Ending(attempt.held, COMPLETED, text, started_at=attempt.started_at)


# ---- by what happened to it


def timed_out(attempt: Attempt, error: BaseException | None = None) -> Ending:
    seconds = (attempt.held.timeout or 0) / MICRO
    text = f"took longer than its timeout of {seconds:g} s"
    kind = None
    if error is not None:
        text += "\n" + describe(error)
        kind = type_of(error)
    delay = _delay(attempt, TimeoutError())
    return _ending(attempt, Outcome.TIMEOUT, error=text, error_type=kind, delay=delay)


def released(attempt: Attempt) -> Ending:
    """Handed back: the worker stops, or another should have it."""
    return _ending(attempt, Outcome.RELEASED, started=attempt.begun is not None)


def put_off(attempt: Attempt) -> Ending:
    """Handed back without having begun, for a little later: there is no room for it here, and
    another worker can have it."""
    return _snoozed(attempt, 0.5, 2.0, started=False)


def never_begun(attempt: Attempt) -> Ending:
    """Its process died before the handler was called: no fault of this job."""
    attempt.begun = attempt.started_at = None
    return released(attempt)


def crashed(attempt: Attempt, reason: str) -> Ending:
    """The process it ran in is gone."""
    delay = lost_delay(attempt.held.lost + 1)
    return _ending(attempt, Outcome.LOST, error=reason, delay=delay)


def _snoozed(attempt: Attempt, least: float, most: float, *, started: bool = True) -> Ending:
    delay = round(random.uniform(least, most) * MICRO)
    return _ending(attempt, Outcome.SNOOZED, started=started, delay=delay)


def _delay(attempt: Attempt, error: BaseException) -> int | None:
    delay = next_try(attempt.task.backoff, error, attempt.held.used + 1, attempt.now)
    if delay is not None and attempt.misfit is error:
        # A newer or older release may know them: give a deployment time to end.
        delay = max(delay, MISFIT_DELAY * 2**attempt.held.used)
    return delay


def _ending(attempt: Attempt, outcome: Outcome, **fields: Any) -> Ending:
    return Ending(attempt.held, outcome, started_at=attempt.started_at, **fields)


# ---- for people


def describe(error: BaseException) -> str:
    """The error with its traceback, without the frames that stand around every handler."""
    try:
        shown = traceback.TracebackException.from_exception(error, compact=True)
        frames = [frame for frame in shown.stack if frame.filename not in _AROUND]
        if frames:
            shown.stack = traceback.StackSummary.from_list(frames)
        text = "".join(shown.format()).rstrip()
    except Exception as problem:
        text = f"{type(error).__name__} (its text cannot be shown: {type(problem).__name__})"
    return shortened(text)


def reason_of(error: BaseException) -> str:
    """What a signal says, in its own words alone."""
    try:
        return shortened(str(error))
    except Exception as problem:
        return f"{type(error).__name__} (its text cannot be shown: {type(problem).__name__})"


def shortened(text: str) -> str:
    """The beginning and the end of a text that is too long to keep."""
    if len(text) > MOST_ERROR:
        half = MOST_ERROR // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    return text
