"""The log: one subscriber that writes a line for each event worth one.

It runs on the thread of the events, so that no worker waits for a logging handler. What kind of
error an attempt ended with is said, never its text, which may be private.
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
LEVELS = {"troubled": logging.WARNING, "broken": logging.ERROR}  # by a worker's state


def write_log(events: Events) -> None:
    """Subscribe the log."""
    events.subscribe(_write, [event.name for event in LOGGED], trouble_only=True)


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
    if event.final or event.retry_in is None:
        log.warning("%s: %s; the job has failed", _attempt(event), what)
    else:
        log.info("%s: %s; again in %.1f s", _attempt(event), what, event.retry_in)


def _attempt(event: Any) -> str:
    return f"attempt {event.attempt} of job {event.job} ({event.task})"
