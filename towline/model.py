"""The words of the domain as values: states, outcomes, and the records that cross the store.

Records have their fields in the order their statements return them; times are integer
microseconds and payloads are JSON text; `app/handles.py` makes what people read of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

from msgspec import Struct


class State(StrEnum):
    """Where a job stands."""

    BLOCKED = "blocked"
    SCHEDULED = "scheduled"
    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def open(self) -> bool:
        return self not in (State.COMPLETED, State.FAILED, State.CANCELLED)


class Outcome(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    CONTINUED = "continued"
    FAILED = "failed"
    TIMEOUT = "timeout"
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"
    LOST = "lost"
    RELEASED = "released"


class ChainState(StrEnum):
    """Where a chain stands; it ends as its last job ended."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Live(IntEnum):
    """Code of `live.state`. A parked job waits until its reason is gone; people see pending."""

    PENDING = 0
    SCHEDULED = 1
    BLOCKED = 2
    RUNNING = 3
    PARKED = 4


def unknown_task(task: str) -> str:
    """What `live.parked_for` says of a job whose task its worker does not know. Another reason has
    another word before the colon; what ends it unparks by the whole of it."""
    return f"task:{task}"


class Policy(IntEnum):
    """What a waiting job does when a blocker fails or is cancelled."""

    FAIL = 0
    WAIT = 1
    RUN = 2


# Codes of `attempt.outcome` and `chain.state`: the position in the enumeration, from one and zero.
OUTCOMES: tuple[Outcome | None, ...] = (None, *Outcome)
OUTCOME_CODE = {outcome: code for code, outcome in enumerate(OUTCOMES) if outcome is not None}
CHAIN_STATES = tuple(ChainState)
CHAIN_CODE = {state: code for code, state in enumerate(CHAIN_STATES)}

LIVE_STATE = {
    Live.PENDING: State.PENDING,
    Live.SCHEDULED: State.SCHEDULED,
    Live.BLOCKED: State.BLOCKED,
    Live.RUNNING: State.RUNNING,
    Live.PARKED: State.PENDING,
}
END_STATE = {
    Outcome.COMPLETED: State.COMPLETED,
    Outcome.CONTINUED: State.COMPLETED,
    Outcome.FAILED: State.FAILED,
    Outcome.TIMEOUT: State.FAILED,
    Outcome.LOST: State.FAILED,
    Outcome.CANCELLED: State.CANCELLED,
}
# How a chain ends with its last job; one that went on has another.
CHAIN_END: dict[Outcome, ChainState] = {
    outcome: ChainState(state)
    for outcome, state in END_STATE.items()
    if outcome is not Outcome.CONTINUED
}


class NewBlocker(Struct, gc=False):
    """A chain to wait for: a stored one by id, or a call of the same batch by its index. A handle
    says when its chain was created: after a rollback the id may be another's."""

    chain_id: int | None = None
    index: int | None = None
    name: str | None = None
    trace: str | None = None
    created_at: int | None = None


class NewJob(Struct, gc=False):
    """A job to be stored. Durations and times are microseconds.

    There may be 100,000 of them, so they are hidden from the garbage collector, which would look
    through them again and again; they cannot be part of a circle.
    """

    task: str
    arguments: str
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 5
    timeout: int | None = None
    delay: int | None = None
    at: int | None = None
    label: str | None = None
    key: str | None = None
    scope: str = "open"
    window: int | None = None
    on_conflict: str = "return"
    blockers: Sequence[NewBlocker] = ()
    policy: Policy = Policy.FAIL
    trace: str | None = None
    # A continuation takes these from its predecessor when they are not said.
    inherit_queue: bool = False
    inherit_priority: bool = False


class Claimed(NamedTuple):
    """A claimed job: what to run, and what to finish it with: the full key, and the fence, which is
    job, attempt and worker."""

    job_id: int
    attempt: int
    queue: str
    priority: int
    chain_id: int
    position: int
    task: str
    arguments: str
    used: int
    lost: int
    max_attempts: int
    timeout: int | None
    key: str | None
    label: str | None
    blockers: int
    trace: str | None
    created_at: int
    claimed_at: int
    worker: int | None


def storable(text: str | None) -> str | None:
    """Text that every database takes: what went wrong must be recorded, whatever it says."""
    if text is None or text.isprintable():
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def type_of(error: BaseException) -> str | None:
    """The class of an error with its module: `builtins.ValueError`, `shop.errors.CardRefused`.

    Those that this package offers are its own, whichever module they stand in: `towline.Fail`.
    """
    kind = type(error)
    module = __package__ if kind.__module__ in _OFFERED else kind.__module__
    return storable(f"{module}.{kind.__qualname__}"[:MOST_TYPE])


MOST_TYPE = 500  # characters of a class with its module
_OFFERED = (f"{__package__}.errors", f"{__package__}.task.retry")


class Ending(Struct):
    """How one claimed attempt ended, to be recorded by `finish`.

    `delay` (microseconds) asks for another try: after a failure, a snooze, or a loss. `next` is
    the continuation. An attempt that never called its handler says `started=False` and leaves
    no row.
    """

    held: Claimed
    outcome: Outcome
    output: str | None = None
    error: str | None = None
    delay: int | None = None
    started_at: int | None = None
    started: bool = True
    next: NewJob | None = None
    error_type: str | None = None

    def __post_init__(self) -> None:
        if self.error is not None:
            self.error = storable(self.error)

    @property
    def key(self) -> tuple[int, int]:
        return self.held[:2]  # job, attempt

    def refused(self, problem: Exception) -> Ending:
        """What is recorded instead of an ending that cannot be: its job fails, and no other."""
        return Ending(
            self.held,
            Outcome.FAILED,
            started_at=self.started_at,
            error=f"{type(problem).__name__}: {problem}",
            error_type=type_of(problem),
        )


class JobRecord(Struct, frozen=True, gc=False):
    """A job as it stands, joined from `job`, `live` and its last attempt."""

    id: int
    chain_id: int
    position: int
    task: str
    label: str | None
    queue: str
    priority: int
    max_attempts: int
    timeout: int | None
    key: str | None
    blockers: int
    policy: int
    arguments: str
    trace: str | None
    created_at: int
    live_state: int | None
    attempt: int | None
    used: int | None
    lost: int | None
    open_blockers: int | None
    run_at: int | None
    # What follows a new job does not have: no claim, no attempt.
    started_at: int | None = None
    progress: float | None = None
    progress_text: str | None = None
    worker: str | None = None
    held_by: int | None = None  # the number of that worker
    parked_for: str | None = None
    last_number: int | None = None
    last_outcome: int | None = None
    last_worker: str | None = None
    last_started_at: int | None = None
    last_ended_at: int | None = None
    last_output: str | None = None
    last_error: str | None = None
    last_progress: float | None = None
    last_progress_text: str | None = None
    last_blocker: int | None = None
    continued_by: int | None = None
    ended_by: str | None = None
    last_run_at: int | None = None
    last_error_type: str | None = None

    @property
    def state(self) -> State:
        if self.live_state is not None:
            if self.live_state == Live.RUNNING and self.started_at is None:
                return State.PENDING  # claimed ahead: its handler was not called yet
            return LIVE_STATE[Live(self.live_state)]
        return END_STATE[self.outcome or Outcome.CANCELLED]

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the last attempt that ended."""
        return OUTCOMES[self.last_outcome or 0]


class Enqueued(Struct, frozen=True, gc=False):
    """The answer to one NewJob: the new job, or the last job of the chain that has its key. As many
    as those, so hidden as they are."""

    record: JobRecord
    created: bool

    def __iter__(self) -> Iterator[Any]:
        return iter((self.record, self.created))


class ChainRecord(NamedTuple):
    """A chain as it stands."""

    id: int
    task: str
    state_code: int
    created_at: int
    ended_at: int | None
    trace: str | None
    label: str | None
    key: str | None

    @property
    def state(self) -> ChainState:
        return CHAIN_STATES[self.state_code]


class AttemptRecord(NamedTuple):
    """One attempt: an ended one from `attempt`, or the running one from `live` (outcome 0)."""

    job_id: int
    number: int
    outcome_code: int
    final: int | None
    worker: str | None
    started_at: int | None
    ended_at: int | None
    output: str | None
    error: str | None
    error_type: str | None
    progress: float | None
    progress_text: str | None
    ended_by: str | None

    @property
    def outcome(self) -> Outcome | None:
        return OUTCOMES[self.outcome_code]


class BlockerRecord(NamedTuple):
    """A chain a job waits for, with what it ended with."""

    job_id: int
    position: int
    name: str | None
    chain_id: int
    chain_state: int
    task: str | None
    output: str | None
    error: str | None
    trace: str | None

    @property
    def state(self) -> ChainState:
        return CHAIN_STATES[self.chain_state]


class DependentRecord(NamedTuple):
    """A job that waits, or waited, for a chain."""

    chain_id: int
    job_id: int
    own_chain_id: int
    queue: str
    priority: int
    policy: int
    task: str
    key: str | None
    name: str | None


class PausedRecord(NamedTuple):
    """A queue from which nothing is claimed, since when and by whose word."""

    name: str
    paused_at: int
    paused_by: str | None


class WorkerRecord(NamedTuple):
    """A registered worker; its lease covers everything it runs."""

    id: int
    name: str
    host: str
    pid: int
    birth: str | None
    version: str
    queues: str
    concurrency: int
    started_at: int
    seen_at: int
    lease_until: int
