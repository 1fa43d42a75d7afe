"""The log: one subscriber that writes a line for each event worth one.

It runs on the thread of the events, so that no worker waits for a logging handler. Of an error its
kind is said. What it says may be private, and anything to a terminal: a worker with error_text=True
has the first line of it, at debug also the traceback; `towline worker` shows that as plain text.
"""

from __future__ import annotations

import logging
from logging import ERROR, INFO, WARNING
from typing import Any

from ..events import Events, kinds
from ..text import TRACEBACK, counted

log = logging.getLogger("towline.worker")

LOGGED: tuple[type[kinds.Event], ...] = (
    kinds.AttemptEnded, kinds.AttemptStopping, kinds.AttemptAbandoned, kinds.AttemptReturned,
    kinds.JobParked, kinds.JobExpired, kinds.JobSwept, kinds.JobOrphaned, kinds.LeaseLost,
    kinds.WorkerChanged, kinds.TelemetryDropped,
)  # fmt: skip
# What a line may have by `extra`, for programs.
FIELDS = (
    "event", "job", "chain", "task", "queue", "attempt", "worker", "outcome", "duration",
    "error_type", "trace", "span", "by",
)  # fmt: skip
MOST_TEXT = 500  # characters
LEVELS = {"troubled": WARNING, "broken": ERROR}  # by a worker's state


def write_log(events: Events) -> None:
    """Subscribe the log."""
    names = [event.name for event in LOGGED]
    events.subscribe(_write, names, trouble_only=True, logs=True)


def write_each(events: Events) -> None:
    """Where the level asks for it, subscribe to every attempt: when it begins and ends."""
    if log.isEnabledFor(logging.DEBUG) and not events.has(_write_each):
        names = [kinds.AttemptStarted.name, kinds.AttemptEnded.name]
        events.subscribe(_write_each, names, logs=True)


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
            _say(event, WARNING, "%s takes longer than its timeout: told to stop", _attempt(event))
        case kinds.AttemptStopping():
            _say(event, INFO, "%s is not this worker's any more: told to stop", _attempt(event))
        case kinds.AttemptAbandoned():
            _say(event, WARNING, "%s did not stop: its slot is replaced", _attempt(event))
        case kinds.AttemptReturned(why=why, error=error):
            _say(event, ERROR, "%s was %s: its job goes back", _attempt(event), why, error=error)
        case kinds.JobParked(task=task):
            _say(event, WARNING, "no task named %s here: set aside until a worker knows it", task)
        case kinds.JobExpired(task=task, count=count):
            _say(event, INFO, "%d jobs of task %s came too late to start: cancelled", count, task)
        case kinds.JobSwept(count=count):
            jobs = counted(count, "job", "jobs")
            _say(event, WARNING, "took back %s of workers that are gone", jobs)
        case kinds.JobOrphaned(count=count):
            gone = "removed %d open jobs whose rows in the table of jobs are gone"
            _say(event, WARNING, gone, count)
        case kinds.LeaseLost(worker=worker):
            lost = "worker %s had lost its lease: what it ran was taken over"
            _say(event, WARNING, lost, worker)
        case kinds.WorkerChanged(worker=worker, text=text, error=error):
            _say(event, LEVELS.get(event.state, INFO), "worker %s %s", worker, text, error=error)
        case kinds.TelemetryDropped(count=count):
            _say(event, WARNING, "%d events were dropped: their subscribers are too slow", count)


def _write_ended(event: kinds.AttemptEnded) -> None:
    if event.outcome not in ("failed", "timeout", "lost"):
        return
    raised = event.error_type if event.outcome == "failed" else None
    what = (raised or event.outcome).rpartition(".")[2]
    if raised and event.error and (text := _first_line(event.error, raised)):
        what = f"{what}: {text}"
    if event.final or event.retry_in is None:
        _say(event, WARNING, "%s: %s; the job has failed", _attempt(event), what)
    else:
        _say(event, INFO, "%s: %s; again in %.1f s", _attempt(event), what, event.retry_in)


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


def _say(
    event: kinds.Event, level: int, text: str, *args: object, error: BaseException | None = None
) -> None:
    log.log(level, text, *args, exc_info=error, extra=_fields(event))


def _fields(event: kinds.Event) -> dict[str, Any]:
    """What lines for programs have: those of the list that the event knows."""
    known = {name: getattr(event, name, None) for name in FIELDS if name != "event"}
    return {
        "event": event.name,
        **{name: value for name, value in known.items() if value is not None},
    }


def _attempt(event: Any) -> str:
    return f"attempt {event.attempt} of job {event.job} ({event.task})"
