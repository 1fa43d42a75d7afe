"""What a handler knows about the attempt it runs in.

A parameter annotated `Context` is injected and never stored; deep code asks `context()`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    NamedTuple,
    SupportsFloat,
    TypeVar,
    cast,
    get_origin,
    overload,
)

from msgspec import Struct

from ..errors import InvalidSetting, InvalidState
from ..model import ChainState, Outcome
from ..records import BlockerRecord
from ..times import to_datetime_or_none
from .stored import Stored
from .trace import Traceparent

if TYPE_CHECKING:
    from ..worker.attempt import Attempt

T = TypeVar("T")

MOST_TEXT = 1000  # characters of a progress that are kept


class Token(NamedTuple):
    """Fences the world outside the database: no two attempts have the same, not even after a crash
    in which an attempt number was given out again."""

    job_id: int
    attempt: int
    claimed_at: int


class Failure(Struct, frozen=True):
    """A blocker that failed or was cancelled, as a job with on_blocker_failure="run" sees it."""

    chain_id: int
    state: ChainState
    reason: str | None


# Not just anything: a type in its place asks for a conversion.
Default = str | float | Sequence[Any] | Mapping[str, Any] | Failure | None


class Blockers(Sequence[Any]):
    """Outputs of the chains a job waited for: by position in declared order, or by name.

    Each is decoded by its task's return type where this process knows the task, else as plain
    JSON; `get` can convert to the type the handler asks for. It iterates over outputs, as a
    sequence does; names are asked for as in a mapping: `in`, `keys`, `values`, `items`, `get`.
    """

    def __init__(
        self,
        records: Sequence[BlockerRecord],
        decode: Callable[[str, str | None], Any],
    ) -> None:
        self._records = records
        self._decode = decode

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return [self._value(record) for record in self._records[key]]
        return self._value(self._record(key))

    def __contains__(self, key: object) -> bool:
        """Whether one has this name; for anything but a str, whether it is one of the outputs."""
        if isinstance(key, str):
            return any(record.name == key for record in self._records)
        return any(value is key or value == key for value in self)

    def keys(self) -> tuple[int | str, ...]:
        """Names, and positions of those that have none; in declared order."""
        return tuple(
            number if record.name is None else record.name
            for number, record in enumerate(self._records)
        )

    def values(self) -> tuple[Any, ...]:
        """All outputs, in declared order."""
        return tuple(self)

    def items(self) -> tuple[tuple[int | str, Any], ...]:
        return tuple(zip(self.keys(), self, strict=True))

    @property
    def names(self) -> tuple[str | None, ...]:
        return tuple(record.name for record in self._records)

    @overload
    def get(self, key: int | str, type: type[T], /) -> T | Failure: ...
    @overload
    def get(self, key: int | str, *, type: type[T]) -> T | Failure: ...
    @overload
    def get(self, key: int | str, default: Default = None) -> Any: ...
    def get(self, key: int | str, default: Any = None, *, type: Any = None) -> Any:
        """The output at a position or under a name; the default when there is none.

        With a type in place of the default it is converted to that, and must be there:
        `ctx.blockers.get("sizes", list[int])`.
        """
        if type is None and _is_type(default):
            type = default
        if type is None:
            try:
                return self[key]
            except LookupError:
                return default
        record = self._record(key)
        if record.state is not ChainState.COMPLETED:
            return _failure(record)
        from .signature import convert

        return convert(record.output or "null", type)

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


def _is_type(given: object) -> bool:
    return isinstance(given, type) or get_origin(given) is not None


def _failure(record: BlockerRecord) -> Failure:
    return Failure(record.chain_id, record.state, record.error)


StoppedFor = Literal["cancelled", "timeout", "lost", "stopping"]


class Previous(Struct, frozen=True):
    """An earlier attempt of the same job."""

    number: int
    outcome: Outcome
    error_type: str | None
    error: str | None
    started_at: datetime | None
    ended_at: datetime


class Context:
    """The running attempt: which job, which number, what it waited for."""

    job_id = Stored[int]()
    chain_id = Stored[int]()
    task = Stored[str]()
    queue = Stored[str]()
    label = Stored[str | None]()
    attempt = Stored[int]()  # number of this attempt: the fence
    max_attempts = Stored[int]()
    trace = Traceparent()  # the traceparent the job was stored with

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._record = attempt.held

    @cached_property
    def blockers(self) -> Blockers:
        """Outputs of what the job waited for. Of more than 1,000 a page at a time is read when it
        is asked for, which blocks: a handler that awaits says `await ctx.ablockers()`."""
        return self._attempt.decoded_blockers()

    async def ablockers(self) -> Blockers:
        """The same, all of it read before, without blocking the event loop."""
        return await self._attempt.all_blockers()

    @cached_property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines say which job they are about."""
        extra = {
            "job": self.job_id, "chain": self.chain_id, "attempt": self.attempt, "task": self.task,
        }  # fmt: skip
        return JobLogger(logging.getLogger("towline.job"), extra)

    @property
    def tick(self) -> datetime | None:
        """The tick of the schedule that stored this job: the time it is about, however late it
        runs. None for other jobs, and for those of `run()`."""
        return to_datetime_or_none(self._record.tick)

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: it was cancelled, took too long, lost its lease, or the
        worker stops."""
        return self._attempt.stopped_for is not None

    @property
    def stopped_for(self) -> StoppedFor | None:
        """Why it should stop: "cancelled" (or ended by hand), "timeout", "lost" (its lease, so that
        another worker has the job), "stopping" (the worker does); None: it should not."""
        return self._attempt.why_stopped()

    @cached_property
    def previous(self) -> Previous | None:
        """How the last attempt of this job ended; None on the first. It is read when it is asked
        for, by a statement that blocks; an awaiting handler asks `await ctx.aprevious()`."""
        return self._attempt.previous()

    async def aprevious(self) -> Previous | None:
        return await self._attempt.aprevious()

    @property
    def stop(self) -> threading.Event:
        """The same to wait for: `ctx.stop.wait(60)` sleeps until the handler should stop."""
        return self._attempt.stop

    def progress(self, fraction: SupportsFloat | None = None, text: str | None = None) -> None:
        """Report how far the attempt is; written a few times a second at most.

        `fraction` is any real number from 0 to 1; of a long `text` the beginning is kept.
        """
        if text is not None and not isinstance(text, str):
            raise InvalidSetting(f"the text of a progress is a str, not {type(text).__name__}")
        part = None if fraction is None else _fraction(fraction)
        self._attempt.report(part, None if text is None else str.__str__(text)[:MOST_TEXT])

    def transaction(self, *, on: object = None) -> Any:
        """A transaction in which the application's writes and the job's end commit together.

        `with` or `async with`; `tx.execute(…)` writes, `tx.complete(value)` ends the job. With
        on= it is the application's own connection or session.
        """
        return self._attempt.transaction(on)

    @property
    def token(self) -> Token:
        return Token(self._record.job_id, self._record.attempt, self._record.claimed_at)


def _fraction(given: Any) -> float:
    """A plain float: the database knows nothing of NumPy, Decimal or Fraction."""
    problem = f"progress is a fraction from 0 to 1, not a {type(given).__name__}"
    if isinstance(given, str | bytes):
        raise InvalidSetting(problem)
    try:
        fraction = float(given)
    except (TypeError, ValueError, OverflowError):
        raise InvalidSetting(problem) from None
    if not 0 <= fraction <= 1:  # nor NaN
        raise InvalidSetting(f"progress is a fraction from 0 to 1, not {fraction!r}")
    return fraction


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Puts the job in front of each line, and beside it for machines."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        extra = self.extra or {}
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # who called this
        head = f"[{extra['task']} {extra['job']}/{extra['attempt']}]"
        if args:
            head = head.replace("%", "%%")
        self.logger.log(level, f"{head} {msg}", *args, **kwargs)  # noqa: G004


class _Injected:
    """Stands where the worker puts the context; touching it outside a worker says so."""

    def __getattr__(self, name: str) -> Any:
        raise InvalidState(
            "there is no running attempt here: the context is injected by a worker, "
            "give one yourself when you call the function directly"
        )

    def __repr__(self) -> str:
        return "INJECTED"


# Any, so that it may stand where the output of a blocker is handed in: sizes: list[int] = INJECTED.
INJECTED: Final[Any] = _Injected()

current: ContextVar[Attempt] = ContextVar("towline.attempt")


def context() -> Context:
    """The context of the attempt this code runs in."""
    try:
        return current.get().context
    except LookupError:
        raise InvalidState("there is no running attempt here") from None
