"""Points in time: aware datetimes at the public edge, integer microseconds inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
# A day is left at either end, so that each can be shown in every time zone.
_FIRST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
_LAST = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)


def instant(moment: datetime) -> int:
    """An aware datetime as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """Microseconds since 1970 as an aware datetime in UTC; beyond the calendar, its end."""
    try:
        time = _EPOCH + micros * _MICROSECOND
    except OverflowError:
        return _FIRST if micros < 0 else _LAST
    return min(max(time, _FIRST), _LAST)


def can_be_shown(moment: datetime) -> bool:
    """Whether an aware datetime has a place in the calendar of every time zone."""
    return _FIRST <= moment <= _LAST


def moment_or_none(micros: int | None) -> datetime | None:
    return None if micros is None else moment(micros)
