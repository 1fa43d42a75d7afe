"""Times and durations: datetimes, seconds and timedeltas at the public edge, integer microseconds
inside."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo

from .errors import InvalidSetting

Seconds = float | timedelta

MICRO = 1_000_000
LONGEST = 10**10  # seconds, about 300 years: later than that has no date and no column to store it

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
# A day is left at either end, so that each can be shown in every time zone.
_FIRST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def to_micros(time: datetime) -> int:
    """An aware datetime as microseconds since 1970."""
    return (time - _EPOCH) // _MICROSECOND


def to_datetime(micros: int) -> datetime:
    """Microseconds since 1970 as an aware datetime in UTC; beyond the calendar, its end."""
    try:
        time = _EPOCH + micros * _MICROSECOND
    except OverflowError:
        return _FIRST if micros < 0 else _LAST
    return min(max(time, _FIRST), _LAST)


def can_be_shown(time: datetime) -> bool:
    """Whether an aware datetime has a place in the calendar of every time zone."""
    return _FIRST <= time <= _LAST


def check_moment(moment: object, what: str) -> None:
    """A time that is the same for everybody, or InvalidSetting."""
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidSetting(
            f"{what} is a datetime with a time zone, such as datetime.now(UTC) + timedelta(hours=1)"
        )
    if not can_be_shown(moment):
        raise InvalidSetting(f"{what} is beyond what a calendar can show in every time zone")


def to_datetime_or_none(micros: int | None) -> datetime | None:
    return None if micros is None else to_datetime(micros)


def micros(duration: Seconds, what: str = "a duration") -> int:
    """Turn seconds or a timedelta into integer microseconds; refuse what is no time to wait."""
    if isinstance(duration, bool) or not isinstance(duration, int | float | timedelta):
        raise InvalidSetting(f"{what} is seconds or a timedelta, not {type(duration).__name__}")
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not abs(seconds) <= LONGEST:  # nor NaN
        raise InvalidSetting(
            f"{what} must be a finite number of seconds, not {seconds} (at most {LONGEST})"
        )
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    return round(duration * MICRO)


def span_of(text: str) -> timedelta | None:
    """How long: 15m, 2h, 3d; None when the text says something else."""
    found = _SPAN.fullmatch(text.strip())
    return timedelta(seconds=float(found[1]) * _SECONDS[found[2]]) if found else None


def moment_of(text: str, zone: tzinfo | None = None) -> datetime:
    """A time, or how long ago: 2026-05-01T12:00, 15m, 2h, 3d; in a zone, this machine's if none is
    said. Raises ValueError, or OverflowError for one beyond the calendar."""
    if span := span_of(text):
        return datetime.now(UTC) - span
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=zone)).astimezone(UTC)


def length(span: timedelta, units: int = 2) -> str:
    """A duration in the largest units that matter."""
    seconds = span.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
        if len(parts) == units:
            break
    return " ".join(part for part in parts if part)


def distance(when: datetime | None, now: datetime) -> str:
    """A time as people say it: just now, 3 s ago, in 5 min."""
    if when is None:
        return ""
    if when > now:
        return f"in {length(when - now, 1)}"
    return f"{length(now - when, 1)} ago" if now - when >= _SECOND else "just now"
