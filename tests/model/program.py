"""The words programs are written in: plain values, with names where the engines have ids.

A program is a list of steps; a step is a verb and what it is told. The model and a real store have
the same verbs. A job's name is its label, so it is found again by any read; SQLite gives an id out
again after a rollback and PostgreSQL does not, so ids never stand in a program.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from towline.model import ChainState, Outcome, Policy

Answer = Any
Seen = dict[str, Any]
"""A record as a read shows it: its fields by name, with names in place of ids."""


@dataclass(frozen=True)
class New:
    """A job to be stored. Without a queue or a priority it has its predecessor's, or the usual."""

    name: str
    task: str = "a"
    arguments: str = "{}"
    queue: str | None = None
    priority: int | None = None
    max_attempts: int = 5
    timeout: int | None = None
    delay: int | None = None
    at: int | None = None
    key: str | None = None
    scope: str = "open"
    window: int | None = None
    on_conflict: str = "return"
    after: tuple[tuple[str, str | None], ...] = ()
    """Chains to wait for, stored ones or of the same batch, each perhaps with a name."""
    policy: Policy = Policy.FAIL
    trace: str | None = None
    children: tuple[New, ...] = ()
    """Of a continuation: jobs that are stored with it, which it may wait for."""
    lane: str | None = None
    weight: int | None = None
    expires: int | None = None
    line: str | None = None
    """The chain before it in the line of its key: that is a rule's to say, and no program's."""


@dataclass(frozen=True)
class Held:
    """A claim that a worker got once, whether it still stands or not."""

    name: str
    attempt: int
    worker: str

    def __repr__(self) -> str:
        return f"{self.name}#{self.attempt}"


@dataclass(frozen=True)
class End:
    """How a claimed attempt ended, as `towline.records.Ending` tells it."""

    held: Held
    outcome: Outcome
    output: str | None = None
    error: str | None = None
    delay: int | None = None
    started_at: int | None = None
    started: bool = True
    next: New | None = None
    error_type: str | None = None


@dataclass(frozen=True)
class Plan:
    """A schedule to be set."""

    name: str
    task: str = "a"
    every: int = 60_000_000
    queue: str = "default"
    catch_up: int = 1
    overlap: str = "skip"
    expires: int | None = None


def fired_name(schedule: str, tick: int | None, created_at: int) -> str:
    """What a schedule's job is called: it has no label, and with the clock back a tick comes
    again."""
    return f"{schedule}@{tick}@{created_at}"


@dataclass(frozen=True)
class Where:
    """Which jobs or chains, as `JobFilter` and `ChainFilter` tell it; the chain by its name."""

    state: str | None = None
    outcome: str | None = None
    task: str | None = None
    queue: str | None = None
    chain: str | None = None
    key: str | None = None
    label: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True)
class Keep:
    """How long ended chains stay, in microseconds; None keeps them for ever."""

    completed: int | None
    failed: int | None
    cancelled: int | None

    def of(self, state: ChainState) -> int | None:
        """The age of chains that ended so; an open one has none."""
        return None if state is ChainState.OPEN else getattr(self, state)


@dataclass(frozen=True)
class Refusal:
    """A verb that raised: the type of the error, and the names it tells."""

    error: str
    names: tuple[str, ...] = ()


OLD_SNAPSHOT = Refusal("WrongIsolation")
"""Told to whoever sees an old state of the database, and needs the newest."""


@dataclass(frozen=True)
class Step:
    """A verb and what it is told."""

    verb: str
    told: tuple[Any, ...] = field(default=())

    def __str__(self) -> str:
        return f"{self.verb}({', '.join(_brief(word) for word in self.told)})"


def _brief(word: Any) -> str:
    if isinstance(word, tuple):
        return f"({', '.join(map(_brief, word))})"
    if isinstance(word, Enum):
        return word.name.lower()
    return said(word) if isinstance(word, New | End | Where | Plan) else repr(word)


def said(word: Any) -> str:
    """A value without what it leaves at its usual."""
    usual = type(word).__dataclass_fields__
    told = (
        f"{name}={_brief(value)}"
        for name, value in vars(word).items()
        if value != usual[name].default
    )
    return f"{type(word).__name__}({', '.join(told)})"
