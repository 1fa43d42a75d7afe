"""What a handler knows about the attempt it runs in.

A parameter annotated `Context` is injected and never stored; deep code asks `context()`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from .errors import InvalidSetting, InvalidState
from .model import BlockerRecord, ChainState, Claimed, Outcome

T = TypeVar("T")


class Token(NamedTuple):
    """Fences the world outside the database: no two attempts have the same, not even after a crash
    in which an attempt number was given out again."""

    job_id: int
    attempt: int
    claimed_at: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A blocker that failed or was cancelled, as a job with on_blocker_failure="run" sees it."""

    chain_id: int
    state: ChainState
    reason: str | None


class Blockers(Sequence[Any]):
    """Outputs of the chains a job waited for: by position in declared order, or by name.

    Each is decoded by its task's return type where this process knows the task, else as plain
    JSON; `get` converts to the type the handler asks for.
    """

    def __init__(
        self,
        records: Sequence[BlockerRecord],
        decode: Callable[[str, str | None], Any],
    ) -> None:
        self._records = list(records)
        self._decode = decode

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return [self._value(record) for record in self._records[key]]
        return self._value(self._record(key))

    def __iter__(self) -> Iterator[Any]:
        return map(self._value, self._records)

    @property
    def names(self) -> tuple[str | None, ...]:
        return tuple(record.name for record in self._records)

    def get(self, key: int | str, type: type[T]) -> T | Failure:
        """The output at a position or under a name, converted to `type`."""
        from .codec import convert

        record = self._record(key)
        if record.state is not ChainState.COMPLETED:
            return _failure(record)
        return cast(T, convert(record.output or "null", type))

    def _record(self, key: object) -> BlockerRecord:
        if isinstance(key, str):
            for record in self._records:
                if record.name == key:
                    return record
            raise KeyError(f"no blocker named {key!r}; there are {', '.join(map(str, self.names))}")
        return self._records[cast(int, key)]

    def _value(self, record: BlockerRecord) -> Any:
        if record.state is not ChainState.COMPLETED:
            return _failure(record)
        return self._decode(record.task or "", record.output)


def _failure(record: BlockerRecord) -> Failure:
    return Failure(record.chain_id, record.state, record.error)


class Running(Protocol):
    """What a context needs of the attempt it stands for."""

    @property
    def held(self) -> Claimed: ...
    @property
    def stop(self) -> threading.Event: ...

    stopped_for: Outcome | None
    report: tuple[float | None, str | None] | None

    def decoded_blockers(self) -> Blockers: ...
    def transaction(self, on: object) -> Any: ...


class Context:
    """The running attempt: which job, which number, what it waited for."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._held = running.held

    @cached_property
    def blockers(self) -> Blockers:
        """Outputs of what the job waited for."""
        return self._running.decoded_blockers()

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines say which job they are about."""
        extra = {"job": self.job_id, "attempt": self.attempt, "task": self.task}
        return JobLogger(logging.getLogger("towline.job"), extra)

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: it was cancelled, took too long, lost its lease, or the
        worker stops."""
        return self._running.stopped_for is not None

    @property
    def stop(self) -> threading.Event:
        """The same to wait for: `ctx.stop.wait(60)` sleeps until it is told to stop."""
        return self._running.stop

    def progress(self, fraction: float | None = None, text: str | None = None) -> None:
        """Say how far it is, for others to see; written a few times a second at most."""
        if fraction is not None and not 0 <= fraction <= 1:
            raise InvalidSetting(f"progress is a fraction from 0 to 1, not {fraction!r}")
        if text is not None and not isinstance(text, str):
            raise InvalidSetting(f"the text of a progress is a str, not {type(text).__name__}")
        self._running.report = (fraction, text)

    def transaction(self, *, on: object = None) -> Any:
        """A transaction in which the application's writes and the job's end commit together.

        `with` or `async with`; `tx.execute(…)` writes, `tx.complete(value)` ends the job. With
        on= it is the application's own connection or session.
        """
        return self._running.transaction(on)

    @property
    def job_id(self) -> int:
        return self._held.job_id

    @property
    def chain_id(self) -> int:
        return self._held.chain_id

    @property
    def task(self) -> str:
        return self._held.task

    @property
    def queue(self) -> str:
        return self._held.queue

    @property
    def label(self) -> str | None:
        return self._held.label

    @property
    def attempt(self) -> int:
        """Number of this attempt: the fence."""
        return self._held.attempt

    @property
    def max_attempts(self) -> int:
        return self._held.max_attempts

    @property
    def trace(self) -> str | None:
        """The traceparent the job was stored with."""
        return self._held.trace

    @property
    def token(self) -> Token:
        return Token(self._held.job_id, self._held.attempt, self._held.claimed_at)


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Puts the job in front of each line, and beside it for machines."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        extra = self.extra or {}
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return f"[{extra['task']} {extra['job']}/{extra['attempt']}] {msg}", kwargs


class _Injected:
    """Stands where the worker puts the context; touching it outside a worker says so."""

    def __getattr__(self, name: str) -> Any:
        raise InvalidState(
            "there is no running attempt here: the context is injected by a worker, "
            "give one yourself when you call the function directly"
        )

    def __repr__(self) -> str:
        return "INJECTED"


INJECTED: Final[Context] = cast(Context, _Injected())

current: ContextVar[Context] = ContextVar("towline.context")


def context() -> Context:
    """The context of the attempt this code runs in."""
    try:
        return current.get()
    except LookupError:
        raise InvalidState("there is no running attempt here") from None
