"""The events, one class each, named noun.participle.

Fields that may be labels of a metric come first and have few values; ids, counts and durations are
for logs and spans.
"""

from __future__ import annotations

import time
from typing import ClassVar

from msgspec import Struct, field


class Event(Struct, frozen=True, kw_only=True):
    """What happened; `at` in seconds since 1970."""

    name: ClassVar[str]
    at: float = field(default_factory=time.time)


class JobEnqueued(Event, frozen=True, kw_only=True):
    """Calls were stored: one event for each task and queue of a call to enqueue. On a caller's
    connection they may still be rolled back."""

    name = "job.enqueued"
    task: str
    queue: str
    created: bool
    connection: str  # own, caller
    count: int
    jobs: tuple[int, ...]  # the first hundred
    duration: float


class JobControlled(Event, frozen=True, kw_only=True):
    """Jobs or a queue were cancelled, retried, completed, deleted, paused …; how many."""

    name = "job.controlled"
    operation: str
    connection: str
    count: int


class JobParked(Event, frozen=True, kw_only=True):
    """Jobs were set aside, since no task of their name is known here."""

    name = "job.parked"
    task: str
    count: int


class JobSwept(Event, frozen=True, kw_only=True):
    """Jobs of workers that are gone were taken back."""

    name = "job.swept"
    count: int


class JobOrphaned(Event, frozen=True, kw_only=True):
    """Open jobs whose rows in the table of jobs are gone were removed."""

    name = "job.orphaned"
    count: int


class ChainPruned(Event, frozen=True, kw_only=True):
    """Old ended chains were deleted."""

    name = "chain.pruned"
    count: int


class AttemptStarted(Event, frozen=True, kw_only=True):
    """A handler was called."""

    name = "attempt.started"
    task: str
    queue: str
    slot: str  # thread, loop, process
    job: int
    chain: int
    position: int
    attempt: int
    worker: str


class AttemptEnded(Event, frozen=True, kw_only=True):
    """An attempt is over. `final`: its job is, too. `accepted`: True written, False fenced off,
    None left to the caller's transaction. `error`: what the history says of it, with its traceback,
    for the log alone; None unless the worker was told to (error_text=True)."""

    name = "attempt.ended"
    task: str
    queue: str
    slot: str
    outcome: str
    final: bool
    accepted: bool | None
    error_type: str | None
    job: int
    chain: int
    position: int
    attempt: int
    worker: str
    duration: float
    retry_in: float | None
    error: str | None = None


class AttemptStopping(Event, frozen=True, kw_only=True):
    """A handler was asked to stop: its timeout has passed, or its job is not this worker's."""

    name = "attempt.stopping"
    task: str
    why: str  # timeout, lost
    job: int
    attempt: int


class AttemptAbandoned(Event, frozen=True, kw_only=True):
    """A handler did not stop: its slot was replaced."""

    name = "attempt.abandoned"
    task: str
    job: int
    attempt: int


class AttemptReturned(Event, frozen=True, kw_only=True):
    """An attempt could not be started, or its end not be recorded: its job goes back."""

    name = "attempt.returned"
    task: str
    why: str  # not started, not recorded
    job: int
    attempt: int
    error: BaseException


class TurnTaken(Event, frozen=True, kw_only=True):
    """A worker's turn was committed."""

    name = "turn.taken"
    finished: int
    refused: int
    postponed: int
    claimed: int
    duration: float


class OperationEnded(Event, frozen=True, kw_only=True):
    """An operation of the store was run, or failed."""

    name = "operation.ended"
    operation: str
    connection: str
    error_type: str | None
    duration: float


class LeaseLost(Event, frozen=True, kw_only=True):
    """A worker's lease had run out: what it ran was taken over."""

    name = "lease.lost"
    worker: str


class WorkerChanged(Event, frozen=True, kw_only=True):
    """A worker started, is stopping, stopped, has trouble, recovered, or ended by an error."""

    name = "worker.changed"
    state: str  # started, stopping, stopped, troubled, recovered, broken
    worker: str
    text: str  # for people: with numbers, or why
    error: BaseException | None = None


class TelemetryDropped(Event, frozen=True, kw_only=True):
    """Events did not fit into the line."""

    name = "telemetry.dropped"
    count: int


EVENTS: dict[str, type[Event]] = {event.name: event for event in Event.__subclasses__()}
