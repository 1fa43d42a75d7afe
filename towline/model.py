"""The words of the domain as values: states, outcomes and their codes."""

from __future__ import annotations

from enum import IntEnum, StrEnum


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
