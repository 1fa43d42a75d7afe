"""The log: one subscriber that writes a line for each event worth one.

It runs on the thread of the events, so that no worker waits for a logging handler. Of an error its
kind is said. What it says may be private, and anything to a terminal: a worker with error_text=True
has the first line of it, at debug also the traceback; `towline worker` shows that as plain text.
"""

from __future__ import annotations

import logging
from typing import Any

from ..events import Events, kinds

log = logging.getLogger("towline.worker")

LOGGED: tuple[type[kinds.Event], ...] = (
    kinds.AttemptEnded, kinds.AttemptStopping, kinds.AttemptAbandoned, kinds.AttemptReturned,
    kinds.JobParked, kinds.JobSwept, kinds.JobOrphaned, kinds.LeaseLost, kinds.WorkerChanged,
    kinds.TelemetryDropped,
)  # fmt: skip
TRACEBACK = "Traceback (most recent call last)"
MOST_TEXT = 500  # characters
LEVELS = {"troubled": logging.WARNING, "broken": logging.ERROR}  # by a worker's state


def write_log(events: Events) -> None:
    """Subscribe the log."""
    events.subscribe(_write, [event.name for event in LOGGED], trouble_only=True)


def write_each(events: Events) -> None:
    """Where the level asks for it, subscribe to every attempt: when it begins and ends."""
    if log.isEnabledFor(logging.DEBUG) and not events.has(_write_each):
        events.subscribe(_write_each, [kinds.AttemptStarted.name, kinds.AttemptEnded.name])


def _write_each(event: kinds.AttemptStarted | kinds.AttemptEnded) -> None:
    if isinstance(event, kinds.AttemptStarted):
        log.debug("%s begins (%s)", _attempt(event), event.slot, extra=_fields(event))
        return
    what, lasted = event.outcome, event.duration
    log.debug("%s: %s after %.3f s", _attempt(event), what, lasted, extra=_fields(event))
    if event.error is not None and TRACEBACK in event.error:
        log.debug("%s:\n%s", _attempt(event), event.error, extra=_fields(event))


def _write(event: kinds.Event) -> None:
    match event:
        case kinds.AttemptEnded():
            _write_ended(event)
        case kinds.AttemptStopping(why="timeout"):
            log.warning("%s takes longer than its timeout: told to stop", _attempt(event))
        case kinds.AttemptStopping():
            log.info("%s is not this worker's any more: told to stop", _attempt(event))
        case kinds.AttemptAbandoned():
            log.warning("%s did not stop: its slot is replaced", _attempt(event))
        case kinds.AttemptReturned(why=why, error=error):
            log.error("%s was %s: its job goes back", _attempt(event), why, exc_info=error)
        case kinds.JobParked(task=task):
            log.warning("no task named %s here: set aside until a worker knows it", task)
        case kinds.JobSwept(count=count):
            log.warning("took back %d jobs of workers that are gone", count)
        case kinds.JobOrphaned(count=count):
            log.warning("removed %d open jobs whose rows in the table of jobs are gone", count)
        case kinds.LeaseLost(worker=worker):
            log.warning("worker %s had lost its lease: what it ran was taken over", worker)
        case kinds.WorkerChanged(worker=worker, text=text, error=error):
            level = LEVELS.get(event.state, logging.INFO)
            log.log(level, "worker %s %s", worker, text, exc_info=error)
        case kinds.TelemetryDropped(count=count):
            log.warning("%d events were dropped: their subscribers are too slow", count)


def _write_ended(event: kinds.AttemptEnded) -> None:
    if event.outcome not in ("failed", "timeout", "lost"):
        return
    raised = event.error_type if event.outcome == "failed" else None
    what = (raised or event.outcome).rpartition(".")[2]
    if raised and event.error and (text := _first_line(event.error, raised)):
        what = f"{what}: {text}"
    fields = {**_fields(event), "outcome": event.outcome, "error_type": event.error_type}
    if event.final or event.retry_in is None:
        log.warning("%s: %s; the job has failed", _attempt(event), what, extra=fields)
    else:
        again = event.retry_in
        log.info("%s: %s; again in %.1f s", _attempt(event), what, again, extra=fields)


def _first_line(error: str, raised: str) -> str:
    """The first line of what an exception says. Below a traceback it stands behind its name."""
    lines = error.splitlines()
    if TRACEBACK not in lines[0]:
        first = lines[0]
    else:
        name = raised.removeprefix("builtins.")
        named = (line for line in reversed(lines) if line.startswith(f"{name}: "))
        first = next(named, "").removeprefix(f"{name}: ")
    return first if len(first) <= MOST_TEXT else f"{first[:MOST_TEXT]} …"


def _fields(event: Any) -> dict[str, Any]:
    """What lines for programs have, as those of `ctx.log` do."""
    return {"job": event.job, "attempt": event.attempt, "task": event.task}


def _attempt(event: Any) -> str:
    return f"attempt {event.attempt} of job {event.job} ({event.task})"
