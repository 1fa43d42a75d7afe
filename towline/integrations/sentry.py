"""Sentry: failures of handlers become events of it, each in a scope of its own.

Local variables of our own frames are left out: they hold the arguments of the job. Performance goes
by OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Literal

import sentry_sdk

from ..errors import InvalidSetting
from ..model import Outcome
from ..worker.ending import of_error

if TYPE_CHECKING:
    from ..app import Towline
    from ..task.context import Context
    from ..worker.attempt import Attempt

When = Literal["final", "every"]


def report(app: Towline, *, when: When = "final") -> None:
    """Report what handlers of this app raise: when their job has failed for good by it ("final"),
    or each time ("every"). A snooze, a cancellation and a stop of the worker are no failures.

    Call it where the app is made, so that process slots do the same. A second call replaces what
    the first said.
    """
    if when not in ("final", "every"):
        raise InvalidSetting(f'when is "final" or "every", not {when!r}')
    for middleware in app.middleware:
        if isinstance(middleware, Reporter):
            middleware.when = when
            return
    app.add_middleware(Reporter(when))
    # Also of what is refused where it is enqueued: our frames have its arguments.
    sentry_sdk.get_global_scope().add_event_processor(_without_our_variables)


class Reporter:
    """A middleware: an isolation scope around each attempt."""

    def __init__(self, when: When) -> None:
        self.when = when

    def __call__(self, context: Context) -> Generator[None, Any, None]:
        with sentry_sdk.isolation_scope() as scope:
            scope.set_tag("task", context.task)
            scope.set_tag("queue", context.queue)
            scope.set_tag("attempt", str(context.attempt))
            try:
                value = yield
            except BaseException as error:
                self._report(context._attempt, error)
                raise
            if isinstance(value, BaseException):  # a signal may be returned as well
                self._report(context._attempt, value)

    def _report(self, attempt: Attempt, error: BaseException) -> None:
        ending = of_error(attempt, error)
        if ending is None or ending.outcome not in (Outcome.FAILED, Outcome.TIMEOUT):
            return
        held = attempt.held
        if self.when == "every" or ending.delay is None or held.used + 1 >= held.max_attempts:
            sentry_sdk.capture_exception(error)


def _without_our_variables(event: Any, hint: Any) -> Any:
    """Every stack of an event: of its exceptions, of its threads, of itself."""
    parts = [event]
    for kind in ("exception", "threads"):
        found = event.get(kind) or {}
        parts += found.get("values") or () if isinstance(found, dict) else found
    for part in parts:
        for frame in (part.get("stacktrace") or {}).get("frames") or ():
            if (frame.get("module") or "").partition(".")[0] == "towline":
                frame.pop("vars", None)
    return event
