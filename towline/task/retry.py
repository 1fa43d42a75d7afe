"""When to try again: the back-off policy, and what a handler may raise or return to decide it.

Arithmetic only; the store writes the time, the attempt decides which rule applies.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from msgspec import Struct, field

from ..errors import InvalidSetting
from ..naming import check_limits
from ..times import LONGEST, MICRO, Seconds, check_moment, micros, to_micros

log = logging.getLogger("towline.worker")


class Backoff(Struct, frozen=True):
    """Exponential, capped, jittered: `first * factor ** (failures - 1)`, at most `cap` seconds.

    `jitter` is the share of the delay that is drawn at random, so that jobs that failed
    together do not come back together. Exceptions in `never` end the job at once; `per` gives an
    exception a back-off of its own, or None for the same.
    """

    first: float = 1.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.25
    never: tuple[type[BaseException], ...] = ()
    per: Mapping[type[BaseException], Backoff | None] = field(default_factory=dict)
    by: Callable[[int], Seconds] | None = (
        None  # the seconds after so many failures, in place of all
    )

    def __post_init__(self) -> None:
        if not (
            self.first >= 0 and 0 <= self.cap <= LONGEST and self.factor >= 1
            and 0 <= self.jitter <= 1
        ):  # fmt: skip
            raise InvalidSetting(
                f"Backoff needs first >= 0, cap from 0 to {LONGEST}, factor >= 1 and jitter "
                "between 0 and 1"
            )

    def delay(self, failures: int, draw: Callable[[], float] = random.random) -> float:
        """Return the seconds to wait after this many failures."""
        if self.by is not None:
            try:
                return min(max(micros(self.by(failures), "a back-off") / MICRO, 0.0), LONGEST)
            except BaseException:  # it is asked for by the pump, too, which must go on
                log.exception("a back-off cannot be had from %r: the usual one is taken", self.by)
        exponent = min(max(failures, 1) - 1, 1000)
        try:
            full = min(self.cap, self.first * self.factor**exponent)
        except OverflowError:
            full = self.cap
        return full * (1 - self.jitter * draw())


OwnBackoff: TypeAlias = Backoff | Callable[[int], Seconds]


class Defaults(Struct, frozen=True):
    """What the tasks of an app have that do not say it themselves."""

    timeout: Seconds | None = None
    max_attempts: int = 5
    backoff: OwnBackoff = Backoff()

    def __post_init__(self) -> None:
        check_limits(self.max_attempts, self.timeout)
        as_backoff(self.backoff)


def as_backoff(given: OwnBackoff) -> Backoff:
    if isinstance(given, Backoff):
        return given
    if not callable(given):
        raise InvalidSetting(
            f"backoff= is a Backoff, or a function of the attempt that gives seconds, not {given!r}"
        )
    return Backoff(by=given)


class Signal(Exception):
    """Base of what a handler may raise or return to say how its attempt ends."""

    if TYPE_CHECKING:  # how it differs from what a chain ends with: see task.Output
        __sizeof__: ClassVar[None]  # type: ignore[assignment] # pyright: ignore[reportIncompatibleMethodOverride]


class Retry(Signal):
    """Try again, after `delay` seconds, at a time, or after the task's back-off; counts as a
    failure."""

    def __init__(
        self,
        reason: str | None = None,
        *,
        delay: Seconds | None = None,
        at: datetime | None = None,
    ) -> None:
        super().__init__(reason or "the handler asked for a retry")
        if delay is not None and at is not None:
            raise InvalidSetting("say Retry(delay=) or Retry(at=), not both")
        if at is not None:
            check_moment(at, "Retry(at=)")
        self.delay = None if delay is None else micros(delay, "Retry(delay=)")
        self.at = None if at is None else to_micros(at)


class Snooze(Signal):
    """Put the job back for `delay` seconds without using an attempt.

    With `lane` the whole lane of the job rests as long: whom it calls has said "too many requests".
    """

    def __init__(self, delay: Seconds, *, lane: bool = False) -> None:
        super().__init__("snoozed")
        self.delay = micros(delay, "Snooze(delay=)")
        self.lane = lane


class Cancel(Signal):
    """End the job as cancelled."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)


class Fail(Signal):
    """End the job as failed, whatever attempts are left."""

    def __init__(self, reason: str = "failed by its handler") -> None:
        super().__init__(reason)


def next_try(backoff: Backoff, error: BaseException, failures: int, now: int = 0) -> int | None:
    """Return the microseconds until the next try after this error, or None for no more.

    A Retry of the handler comes first, then the rules for its exception, then the back-off itself.
    Whether attempts are left is for the store to say.
    """
    if isinstance(error, Retry) and error.delay is not None:
        return error.delay
    if isinstance(error, Retry) and error.at is not None:
        return max(error.at - now, 0)
    if isinstance(error, backoff.never):
        return None
    for kind, rule in backoff.per.items():
        if isinstance(error, kind):
            return None if rule is None else micros(rule.delay(failures))
    return micros(backoff.delay(failures))
