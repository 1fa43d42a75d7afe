"""The records that cross the store.

Their fields are in the order in which their statements return them; times are integer microseconds
and payloads are JSON text; `app/handles.py` makes what people read of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from .model import (
    CHAIN_STATES,
    END_STATE,
    LIVE_STATE,
    OUTCOMES,
    ChainState,
    Live,
    Outcome,
    Policy,
    State,
    type_of,
)

NO_START = -1  # in place of a time: it never began


class NewBlocker(Struct, gc=False):
    """A chain to wait for: a stored one by id, or a call of the same batch by its index. A handle
    says when its chain was created: after a rollback the id may be another's."""

    chain_id: int | None = None
    index: int | None = None
    name: str | None = None
    trace: str | None = None
    created_at: int | None = None
    in_line: int | None = None  # 1: it had the key before
    declared: bool = True  # the handler is given its output


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
    lane: str | None = None
    weight: int | None = None  # None: one
    expires_at: int | None = None
    schedule: str | None = None
    tick: int | None = None
    ordered: int | None = None
    expires: int | None = None  # so long after it is stored it is not started any more
    # A continuation takes these from its predecessor when they are not said.
    inherit_queue: bool = False
    inherit_priority: bool = False
    # Of a continuation: jobs that are stored with it, which its blockers name by their index.
    children: Sequence[NewJob] = ()
    given: Sequence[str] = ()  # beside arguments and time: what it says of the job that it replaces

    def due(self, now: int) -> int:
        """When it may start: never in the past."""
        if self.at is not None:
            return max(self.at, now)
        return now + self.delay if self.delay and self.delay > 0 else now


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
    lane: str | None
    weight: int | None
    expires_at: int | None
    tick: int | None
    created_at: int
    run_at: int  # from when on it could begin
    claimed_at: int
    worker: int | None


class Ending(Struct):
    """How one claimed attempt ended, to be recorded by `finish`.

    `delay` (microseconds) asks for another try: after a failure, a snooze, or a loss. `next` is
    the continuation. An attempt that never called its handler says `started=False` and leaves
    no row, unless its job is over with it: then one without a start.
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
    rests: bool = False  # its lane, too, until the job comes back

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
    lane: str | None  # of its queue: the jobs with which it takes turns
    weight: int | None  # as how many it counts against a limit; None: one
    expires_at: int | None  # it is not started after that
    schedule: str | None  # whose tick it is, and which
    tick: int | None
    ordered: int | None  # 1: behind the chain that had its key before
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
    in_line: int | None = None  # 1: it had the job's key before

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
    lane: str | None


class PausedRecord(NamedTuple):
    """A queue from which nothing is claimed, since when and by whose word."""

    name: str
    paused_at: int
    paused_by: str | None


class LimitRecord(NamedTuple):
    """How much of a queue (lane ""), of each of its lanes ("*") or of one may run and begin, and
    how much does."""

    queue: str
    lane: str
    concurrency: int | None
    rate: int | None
    per: int | None
    running: int | None  # None: of each lane another number
    began: int  # in the last window; of the queue alone
    opens_at: int | None  # when the rate lets the next begin, if not now
    declared: bool  # by the code
    edited: bool  # by a person, since the code declared it
    changed_at: int | None
    changed_by: str | None


class LaneRecord(NamedTuple):
    """A lane as it stands, with the limit that applies to it."""

    queue: str
    lane: str
    closed: int  # 0 open, 1 full, 2 until opens_at, 3 empty
    waiting: int  # counted up to a limit
    running: int
    served_at: int
    opens_at: int | None
    concurrency: int | None
    rate: int | None
    per: int | None
    began: int


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
    declares: str | None = None
