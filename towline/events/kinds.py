"""The events, one class each, named noun.participle.

`labels` are the fields that may be labels of a metric: they have few values. Ids, counts and
durations are for logs and spans. `private` are those that may quote what is nobody's business; our
log has them, if its worker was told to, and subscribers of the application never.
"""

from __future__ import annotations

import time
from typing import ClassVar, Self

from msgspec import Struct, field
from msgspec.structs import replace


class Event(Struct, frozen=True, kw_only=True):
    """What happened; `at` in seconds since 1970."""

    name: ClassVar[str]
    labels: ClassVar[tuple[str, ...]] = ()
    private: ClassVar[tuple[str, ...]] = ()
    at: float = field(default_factory=time.time)

    def public(self) -> Self:
        """The same without what is private."""
        for name in self.private:
            if getattr(self, name) is not None:
                return replace(self, **dict.fromkeys(self.private))
        return self


class JobEnqueued(Event, frozen=True, kw_only=True):
    """Calls were stored: one event for each task and queue of a call to enqueue. On a caller's
    connection they may still be rolled back."""

    name = "job.enqueued"
    labels = "task", "queue", "created", "connection"
    task: str
    queue: str
    created: bool
    connection: str  # own, caller
    count: int
    jobs: tuple[int, ...]  # the first hundred
    duration: float


class JobControlled(Event, frozen=True, kw_only=True):
    """Jobs or a queue were cancelled, retried, completed, deleted, paused …; how many, which (the
    first hundred, of a deletion chains), and by whom, where that was said."""

    name = "job.controlled"
    labels = "operation", "connection"
    operation: str
    connection: str
    count: int
    jobs: tuple[int, ...] = ()
    queue: str | None = None
    by: str | None = None


class JobParked(Event, frozen=True, kw_only=True):
    """Jobs were set aside, since no task of their name is known here."""

    name = "job.parked"
    labels = ("task",)
    task: str
    count: int


class JobSwept(Event, frozen=True, kw_only=True):
    """Jobs of workers that are gone were taken back."""

    name = "job.swept"
    count: int
    worker: str = ""  # who did it


class JobExpired(Event, frozen=True, kw_only=True):
    """Jobs came too late to start, and were cancelled."""

    name = "job.expired"
    labels = ("task",)
    task: str
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
    """A handler was called. `waited`: seconds since its job could have run."""

    name = "attempt.started"
    labels = "task", "queue", "slot"
    task: str
    queue: str
    slot: str  # thread, loop, process
    job: int
    chain: int
    position: int
    attempt: int
    worker: str
    waited: float


class AttemptEnded(Event, frozen=True, kw_only=True):
    """An attempt is over. `final`: its job is, too. `accepted`: True written, False fenced off,
    None left to the caller's transaction. `error_type`: the class of what was raised, with its
    module. `error`: what the history says of it, with its traceback, for the log alone; None unless
    the worker was told to (error_text=True)."""

    name = "attempt.ended"
    labels = "task", "queue", "slot", "outcome", "final", "accepted", "error_type"
    private = ("error",)
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
    waited: float
    duration: float
    retry_in: float | None
    error: str | None = None


class AttemptStopping(Event, frozen=True, kw_only=True):
    """A handler was asked to stop: its timeout has passed, or its job is not this worker's."""

    name = "attempt.stopping"
    labels = "task", "why"
    task: str
    why: str  # timeout, lost
    job: int
    attempt: int


class AttemptAbandoned(Event, frozen=True, kw_only=True):
    """A handler did not stop: its slot was replaced."""

    name = "attempt.abandoned"
    labels = ("task",)
    task: str
    job: int
    attempt: int


class AttemptReturned(Event, frozen=True, kw_only=True):
    """An attempt could not be started, or its end not be recorded: its job goes back."""

    name = "attempt.returned"
    labels = "task", "why", "error_type"
    private = ("error",)
    task: str
    why: str  # not started, not recorded
    error_type: str | None
    job: int
    attempt: int
    error: BaseException | None


class TurnTaken(Event, frozen=True, kw_only=True):
    """A worker's turn was committed."""

    name = "turn.taken"
    finished: int
    refused: int
    postponed: int
    claimed: int
    promoted: int  # scheduled jobs that became pending
    duration: float


class OperationEnded(Event, frozen=True, kw_only=True):
    """An operation of the store was run, or failed."""

    name = "operation.ended"
    labels = "operation", "connection", "error_type"
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
    labels = "state", "error_type"
    private = "text", "error"
    state: str  # started, stopping, stopped, troubled, recovered, broken
    error_type: str | None = None
    worker: str
    queues: tuple[str, ...] = ()
    concurrency: int = 0
    text: str | None = None  # for people: with numbers, or why
    error: BaseException | None = None


class WakeChanged(Event, frozen=True, kw_only=True):
    """What hears of new work lost its server, or has it again; meanwhile workers look by
    themselves."""

    name = "wake.changed"
    labels = "wake", "state"
    wake: str  # listen (PostgreSQL), redis, nats
    state: str  # lost, restored


class TelemetryDropped(Event, frozen=True, kw_only=True):
    """Events did not fit into the line."""

    name = "telemetry.dropped"
    count: int


EVENTS: dict[str, type[Event]] = {event.name: event for event in Event.__subclasses__()}
