"""Ticks: the moments of a schedule, by an expression on the wall clock of a zone or every so often.

An expression is evaluated by `cronsim`, on plain wall-clock times. What a wall-clock time means in
a zone is said here, since that is where others run a job twice, late or never:

    a fixed time in the hour that is lost        once, at its end
    a fixed time in the hour that comes twice    once, the first time
    a `*` in minute or hour                      follows real time: rests in the lost hour, and goes
                                                 on through the repeated one
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from .errors import InvalidSetting
from .times import MICRO, to_datetime, to_micros

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

WALKED = 100  # ticks that are walked one by one when missed ones are counted; beyond, days are

_DAY, _MINUTE, _MICROSECOND = timedelta(days=1), timedelta(minutes=1), timedelta(microseconds=1)


class Timing(NamedTuple):
    """When a schedule ticks, as it is stored: durations and times in microseconds."""

    cron: str | None
    every: int | None
    tz: str
    start_at: int | None
    end_at: int | None

    def after(self, moment: int) -> int | None:
        """The first tick later than a moment; None when there is none any more."""
        start, end = self.start_at, self.end_at
        if start is not None:
            moment = max(moment, start - 1)  # the start itself is a tick that counts
        if self.every is not None:
            first = start or 0
            tick: int | None = first + ((moment - first) // self.every + 1) * self.every
        else:
            assert self.cron is not None
            tick = wall_clock(self.cron, self.tz).after(moment)
        return None if tick is None or (end is not None and tick > end) else tick

    def due(self, first: int, now: int, most: int) -> Due:
        """Of the ticks from `first` on that have come, the newest `most`, and how many there are.

        The newest are found forward from a while ago, and the while doubles: a year of minutes is
        not walked.
        """
        now = now if self.end_at is None else min(now, self.end_at)
        if first > now:
            return Due([], 0)
        while_ago = 60 * MICRO
        while True:
            begin = max(now - while_ago, first - 1)
            ticks = list(self._between(begin, now))
            if begin < first or len(ticks) >= most:
                break
            while_ago *= 2
        total = len(ticks) + (self.number(first - 1, begin) if begin >= first else 0)
        return Due(ticks[-most:], total)

    def number(self, after: int, until: int) -> int:
        """How many ticks are later than `after` and not later than `until`."""
        if self.every is not None:
            start, end = self.start_at, self.end_at
            first = start or 0
            if start is not None:
                after = max(after, start - 1)
            if end is not None:
                until = min(until, end)
            return max((until - first) // self.every - (after - first) // self.every, 0)
        number = 0
        for tick in self._between(after, until):
            number += 1
            if number == WALKED:
                assert self.cron is not None
                until = until if self.end_at is None else min(until, self.end_at)
                return number + wall_clock(self.cron, self.tz).number(tick, until)
        return number

    def _between(self, after: int, until: int) -> Iterator[int]:
        tick = self.after(after)
        while tick is not None and tick <= until:
            yield tick
            tick = self.after(tick)


class Due(NamedTuple):
    """Ticks that have come: the newest of them, oldest first, and how many there are in all."""

    ticks: list[int]
    total: int


class WallClock:
    """The ticks of an expression in a zone. Wall-clock times are naive here."""

    def __init__(self, expression: str, tz: str) -> None:
        from cronsim import CronSim

        self._sim = CronSim
        self._expression = expression
        self._zone = zone(tz)
        self._plain = tz == "UTC"
        minute, hour, *days = expression.split()
        self._real_time = "*" in minute or "*" in hour
        self._days = " ".join(["0 0", *days])
        self._any_day = days == ["*", "*", "*"]
        self._hour, self._minute = hour, minute

    def after(self, moment: int) -> int | None:
        try:
            if self._plain:
                wall = next(self._walls(_naive(moment)), None)
                return None if wall is None else _utc_micros(wall)
            return self._zoned_after(moment)
        except OverflowError:  # beyond the calendar
            return None

    def number(self, after: int, until: int) -> int:
        """How many ticks there are between two moments that are far from each other: day by day.

        A day without a change of the clock has as many as any other. On one with a change, and at
        either end, each tick of the day is looked at.
        """
        first, last = (self._local(moment).date() for moment in (after, until))
        usual = len(self._times)
        number = 0
        looked_at: set[int] = set()
        for day in self._days_between(first, last):
            if first < day < last and self._is_usual(day):
                number += usual
            else:
                looked_at.update(self._ticks_of(day))
        return number + sum(after < tick <= until for tick in looked_at)

    # ---- inside

    def _zoned_after(self, moment: int) -> int | None:
        local = self._local(moment)
        found = self._first(local.replace(tzinfo=None, fold=0), moment)
        if self._real_time and not local.fold:
            turned_back = _offset(local) - _offset(local.replace(fold=1))
            if turned_back > timedelta():  # the hour comes twice: what is over comes once more
                wall = local.replace(tzinfo=None, fold=0)
                second = self._first(wall - turned_back, moment, until=wall)
                if second is not None and (found is None or second < found):
                    return second
        return found

    def _first(self, wall: datetime, moment: int, until: datetime | None = None) -> int | None:
        """The first tick later than a moment, of wall-clock times that are later than this one."""
        for tick_wall in self._walls(wall):
            if until is not None and tick_wall > until:
                return None
            for tick in self._moments(tick_wall):
                if tick > moment:
                    return tick
        return None

    def _moments(self, wall: datetime) -> list[int]:
        """When a wall-clock time ticks: never, once or twice."""
        first = wall.replace(tzinfo=self._zone)
        moment = _utc_micros(first)
        if self._local(moment).replace(tzinfo=None) != wall:  # it is skipped that day
            if self._real_time:
                return []
            return [self._end_of_gap(first)]
        if not self._real_time:
            return [moment]
        second = _utc_micros(first.replace(fold=1))
        return [moment] if second == moment else [moment, second]

    def _end_of_gap(self, first: datetime) -> int:
        """When the clock is set forward over this time: as if it had gone on by the old offset, it
        is past that by as much as it is past the beginning of the gap."""
        low = _utc_micros(first.replace(fold=1))  # by the new offset: before the change
        high = _utc_micros(first)  # by the old one: after it
        before = _offset(self._local(low))
        while high - low > 1:
            middle = (low + high) // 2
            if _offset(self._local(middle)) == before:
                low = middle
            else:
                high = middle
        return high

    def _walls(self, after: datetime) -> Iterator[datetime]:
        return self._sim(self._expression, after)

    def _local(self, moment: int) -> datetime:
        return to_datetime(moment).astimezone(self._zone)

    @property
    def _times(self) -> list[timedelta]:
        return _times_of_day(self._minute, self._hour)

    def _days_between(self, first: date, last: date) -> Iterator[date]:
        """The days on which there are ticks."""
        begin, end = (datetime.combine(day, time()) for day in (first, last))
        if self._any_day:
            while begin <= end:
                yield begin.date()
                begin += _DAY
            return
        for day in self._sim(self._days, begin - _MINUTE):
            if day > end:
                return
            yield day.date()

    def _is_usual(self, day: date) -> bool:
        """Whether the clock is not set on that day, nor at its beginning."""
        if self._plain:
            return True
        begin = self._midnight(day)
        offset = _offset(begin)
        return offset == _offset(self._midnight(day + _DAY)) == _offset(begin - _MINUTE)

    def _midnight(self, day: date) -> datetime:
        return datetime.combine(day, time(), self._zone)

    def _ticks_of(self, day: date) -> Iterator[int]:
        midnight = self._midnight(day)
        if self._is_usual(day):
            begin = _utc_micros(midnight)
            yield from (begin + after // _MICROSECOND for after in self._times)
            return
        for after in self._times:
            yield from self._moments(midnight.replace(tzinfo=None) + after)


wall_clock = lru_cache(1024)(WallClock)


@lru_cache(256)
def _times_of_day(minute: str, hour: str) -> list[timedelta]:
    """The times of a day that fit these two fields."""
    from cronsim import CronSim

    midnight = datetime.combine(date(2000, 1, 1), time())
    before = midnight - _MINUTE
    hours = _until(CronSim(f"0 {hour} * * *", before), midnight + _DAY)
    minutes = _until(CronSim(f"{minute} * * * *", before), midnight + timedelta(hours=1))
    return [(h - midnight) + (m - midnight) for h in hours for m in minutes]


def _until(walls: Iterator[datetime], end: datetime) -> list[datetime]:
    found: list[datetime] = []
    for wall in walls:
        if wall >= end:
            break
        found.append(wall)
    return found


def _offset(local: datetime) -> timedelta:
    return local.utcoffset() or timedelta()


def _naive(moment: int) -> datetime:
    return to_datetime(moment).replace(tzinfo=None)


def _utc_micros(moment: datetime) -> int:
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return to_micros(aware)


@lru_cache(256)
def zone(name: str) -> ZoneInfo:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError, TypeError):
        raise InvalidSetting(
            f"no time zone named {name!r}; where the system has none, pip install tzdata"
        ) from None
