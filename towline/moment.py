"""Points in time: aware datetimes at the public edge, integer microseconds inside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def instant(moment: datetime) -> int:
    """An aware datetime as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """Microseconds since 1970 as an aware datetime in UTC; the calendar's end for any later one."""
    return _EPOCH + min(max(micros, _FIRST), _LAST) * _MICROSECOND


def moment_or_none(micros: int | None) -> datetime | None:
    return None if micros is None else moment(micros)
