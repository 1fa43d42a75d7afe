"""The log: one subscriber that writes a line for each event worth one.

It runs on the thread of the events, so that no worker waits for a logging handler. What kind of
error an attempt ended with is said, never its text, which may be private.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..events import Events
from ..events.kinds import (
    AttemptAbandoned,
    AttemptEnded,
    AttemptReturned,
    AttemptStopping,
    Event,
    JobOrphaned,
    JobParked,
    JobSwept,
    LeaseLost,
    TelemetryDropped,
    WorkerChanged,
)

log = logging.getLogger("towline.worker")

STOPPING = {
    "timeout": (logging.WARNING, "%s takes longer than its timeout: told to stop"),
    "lost": (logging.INFO, "%s is not this worker's any more: told to stop"),
}
LEVELS = {"troubled": logging.WARNING, "broken": logging.ERROR}


def write_log(events: Events) -> None:
    """Subscribe the log."""
    events.subscribe(_write, [event.name for event in LINES], trouble_only=True)


def _write(event: Event) -> None:
    LINES[type(event)](event)


def _ended(event: AttemptEnded) -> None:
    if event.outcome not in ("failed", "timeout", "lost"):
        return
    raised = event.error_type if event.outcome == "failed" else None
    what = (raised or event.outcome).rpartition(".")[2]
    if event.final or event.retry_in is None:
        log.warning("%s: %s; the job has failed", _attempt(event), what)
    else:
        log.info("%s: %s; again in %.1f s", _attempt(event), what, event.retry_in)


def _stopping(event: AttemptStopping) -> None:
    level, text = STOPPING[event.why]
    log.log(level, text, _attempt(event))


def _abandoned(event: AttemptAbandoned) -> None:
    log.warning("%s did not stop: its slot is replaced", _attempt(event))


def _returned(event: AttemptReturned) -> None:
    log.error("%s was %s: its job goes back", _attempt(event), event.why, exc_info=event.error)


def _parked(event: JobParked) -> None:
    log.warning("no task named %s here: set aside until a worker knows it", event.task)


def _swept(event: JobSwept) -> None:
    log.warning("took back %d jobs of workers that are gone", event.count)


def _orphaned(event: JobOrphaned) -> None:
    log.warning("removed %d open jobs whose rows in the table of jobs are gone", event.count)


def _lost(event: LeaseLost) -> None:
    log.warning("worker %s had lost its lease: what it ran was taken over", event.worker)


def _changed(event: WorkerChanged) -> None:
    level = LEVELS.get(event.state, logging.INFO)
    log.log(level, "worker %s %s", event.worker, event.text, exc_info=event.error)


def _dropped(event: TelemetryDropped) -> None:
    log.warning("%d events were dropped: their subscribers are too slow", event.count)


def _attempt(event: AttemptEnded | AttemptStopping | AttemptAbandoned | AttemptReturned) -> str:
    return f"attempt {event.attempt} of job {event.job} ({event.task})"


LINES: dict[type[Event], Callable[[Any], None]] = {
    AttemptEnded: _ended,
    AttemptStopping: _stopping,
    AttemptAbandoned: _abandoned,
    AttemptReturned: _returned,
    JobParked: _parked,
    JobSwept: _swept,
    JobOrphaned: _orphaned,
    LeaseLost: _lost,
    WorkerChanged: _changed,
    TelemetryDropped: _dropped,
}
