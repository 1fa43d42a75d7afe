"""Cron: what an application says of when a schedule ticks, checked when it is made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from .errors import InvalidSetting
from .ticks import Timing, zone
from .times import MICRO, Seconds, can_be_shown, length, micros, to_datetime, to_micros

Overlap = Literal["skip", "queue", "allow", "replace"]

MOST_CAUGHT_UP = 1000
ON_TIME = 60 * MICRO  # a tick that is later than that is missed

# Names for times of the calendar. @reboot is no time.
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}

# Where a look for the first tick of an expression begins.
_BEFORE = datetime(1999, 12, 31, 23, 59, tzinfo=UTC)


class _Expression(Struct, frozen=True):
    expression: str | None = None


class Cron(_Expression, frozen=True, kw_only=True):
    """When a job is to be stored, again and again; checked when made.

    Either an expression of five fields (`"0 3 * * *"`, or a name such as `"@hourly"`) that is read
    in the time zone `tz`, or `every` so many seconds, counted from `start` or else from 1970, so
    that a deploy shifts nothing. From `start` to `end`, both inclusive. `jitter` starts each job up
    to so much later, always the same for the same tick. `catch_up`: how many ticks that nobody was
    there for are made good, the newest of them. `overlap`: what happens at a tick while the job of
    the one before has not ended: "skip" it, "queue" one behind it, "allow" both, "replace" it.
    """

    every: Seconds | None = None
    tz: str = "UTC"
    start: datetime | None = None
    end: datetime | None = None
    jitter: Seconds = 0
    catch_up: int = 1
    overlap: Overlap = "skip"

    def __post_init__(self) -> None:
        if (self.expression is None) == (self.every is None):
            raise InvalidSetting("say an expression or every=, one of the two")
        _check_zone(self.tz)
        for name, time in (("start", self.start), ("end", self.end)):
            _check_time(name, time)
        if self.start is not None and self.end is not None and self.start > self.end:
            raise InvalidSetting("start= is later than end=")
        if self.expression is not None:
            force_setattr(self, "expression", _checked(self.expression))
        if self.every is not None and micros(self.every, "every") < MICRO:
            raise InvalidSetting("every= is at least 1 second")
        jitter = micros(self.jitter, "jitter")
        if jitter < 0:
            raise InvalidSetting("jitter= cannot be negative")
        if self.every is not None and jitter >= micros(self.every):
            raise InvalidSetting("jitter= must be less than every=")
        if (
            isinstance(self.catch_up, bool)
            or not isinstance(self.catch_up, int)
            or not 0 <= self.catch_up <= MOST_CAUGHT_UP
        ):
            raise InvalidSetting(
                f"catch_up is a whole number from 0 to {MOST_CAUGHT_UP}, not {self.catch_up!r}"
            )
        if self.overlap not in get_args(Overlap):
            raise InvalidSetting(
                f'overlap is "skip", "queue", "allow" or "replace", not {self.overlap!r}'
            )

    @property
    def timing(self) -> Timing:
        return Timing(
            self.expression,
            None if self.every is None else micros(self.every),
            self.tz,
            None if self.start is None else to_micros(self.start),
            None if self.end is None else to_micros(self.end),
        )

    def after(self, moment: datetime) -> datetime | None:
        """The first tick later than a moment, in the schedule's time zone; None when there is none
        any more. For tests and previews."""
        _check_time("the moment", moment)
        tick = self.timing.after(to_micros(moment))
        return None if tick is None else to_datetime(tick).astimezone(zone(self.tz))

    def explain(self) -> str:
        """When it ticks, in words: "At 03:00 every day, Europe/Berlin"."""
        return explained(self.timing)


def cron_of(given: Cron | str) -> Cron:
    """What a caller may say for a Cron: an expression alone will do."""
    if isinstance(given, str):
        return Cron(given)
    if not isinstance(given, Cron):
        raise InvalidSetting(f'cron= is a Cron or an expression such as "0 3 * * *", not {given!r}')
    return given


def jitter_of(name: str, tick: int, jitter: int) -> int:
    """By how much a tick's job starts later: by lot, but always the same."""
    if not jitter:
        return 0
    from hashlib import blake2b  # few schedules have jitter

    lot = int.from_bytes(blake2b(f"{name}:{tick}".encode(), digest_size=8).digest())
    return lot % (jitter + 1)


def explained(timing: Timing) -> str:
    """When it ticks, in words."""
    if timing.every is not None:
        return f"Every {length(timedelta(microseconds=timing.every))}"
    from cronsim import CronSim

    assert timing.cron is not None
    text = CronSim(timing.cron, _BEFORE).explain()
    return f"{text}, {timing.tz}"


def _check_zone(name: object) -> None:
    if not isinstance(name, str):
        raise InvalidSetting(
            f'tz= is the name of a time zone such as "Europe/Berlin", not {name!r}'
        )
    zone(name)


def _check_time(name: str, time: datetime | None) -> None:
    if time is None:
        return
    what = name if name.startswith("the") else f"{name}="
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise InvalidSetting(f"{what} is a datetime with a time zone, such as datetime.now(UTC)")
    if not can_be_shown(time):
        raise InvalidSetting(f"{what} is beyond what a calendar can show in every time zone")


def _checked(expression: str) -> str:
    """An expression of five fields, one space between them, that ticks."""
    if not isinstance(expression, str):
        raise InvalidSetting(f"a cron expression is text, not {type(expression).__name__}")
    text = " ".join(expression.split())
    if text.lower() == "@reboot":
        raise InvalidSetting("a schedule has no reboot; enqueue when your program starts")
    if text.startswith("@"):
        known = NICKNAMES.get(text.lower())
        if known is None:
            names = ", ".join(NICKNAMES)
            raise InvalidSetting(f"{text!r} is no name of a time; there are {names}")
        return known
    if len(text.split()) != 5:
        raise InvalidSetting(
            "a cron expression has five fields; for less than a minute say every= "
            f"({text!r} has {len(text.split())})"
        )
    from cronsim import CronSim, CronSimError

    try:
        ticks = next(CronSim(text, _BEFORE), None)
    except (CronSimError, AssertionError) as error:
        raise InvalidSetting(f"{text!r} is no cron expression: {error or 'bad step'}") from None
    if ticks is None:
        raise InvalidSetting(f"{text!r} has no tick in 50 years")
    return text
