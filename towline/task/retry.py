"""When to try again: the back-off policy, and what a handler may raise or return to decide it.

Arithmetic only; the store writes the time, the attempt decides which rule applies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct, field

from ..errors import InvalidSetting
from ..times import LONGEST, Seconds, micros


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
        exponent = min(max(failures, 1) - 1, 1000)
        try:
            full = min(self.cap, self.first * self.factor**exponent)
        except OverflowError:
            full = self.cap
        return full * (1 - self.jitter * draw())


class Signal(Exception):
    """Base of what a handler may raise or return to say how its attempt ends."""

    if TYPE_CHECKING:  # how it differs from what a chain ends with: see task.Output
        __sizeof__: ClassVar[None]  # type: ignore[assignment] # pyright: ignore[reportIncompatibleMethodOverride]


class Retry(Signal):
    """Try again, after `delay` seconds or the task's back-off; counts as a failure."""

    def __init__(self, reason: str | None = None, *, delay: Seconds | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.delay = None if delay is None else micros(delay, "Retry(delay=)")


class Snooze(Signal):
    """Put the job back for `delay` seconds without using an attempt."""

    def __init__(self, delay: Seconds) -> None:
        super().__init__("snoozed")
        self.delay = micros(delay, "Snooze(delay=)")


class Cancel(Signal):
    """End the job as cancelled."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)


class Fail(Signal):
    """End the job as failed, whatever attempts are left."""

    def __init__(self, reason: str = "failed by its handler") -> None:
        super().__init__(reason)


def next_try(backoff: Backoff, error: BaseException, failures: int) -> int | None:
    """Return the microseconds until the next try after this error, or None for no more.

    A Retry of the handler comes first, then the rules for its exception, then the back-off itself.
    Whether attempts are left is for the store to say.
    """
    if isinstance(error, Retry) and error.delay is not None:
        return error.delay
    if isinstance(error, backoff.never):
        return None
    for kind, rule in backoff.per.items():
        if isinstance(error, kind):
            return None if rule is None else micros(rule.delay(failures))
    return micros(backoff.delay(failures))
