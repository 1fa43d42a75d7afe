"""When a schedule ticks: every zone, both changes of the clock, starts and ends, jitter, refusals.

What is expected is found by brute force: minute by minute through real time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from cronsim import CronSim

from tests.speed import by_speed, drawn, seed
from towline import Cron
from towline.cron import NICKNAMES, ON_TIME, cron_of, jitter_of
from towline.errors import InvalidSetting
from towline.ticks import Timing, wall_clock
from towline.times import MICRO, to_datetime, to_micros

MINUTE = 60 * MICRO
HOUR = 60 * MINUTE
DAY = 24 * HOUR
BERLIN = "Europe/Berlin"

EXPRESSIONS = (
    "30 2 * * *", "0,30 0-3 * * *", "59 23 * * *", "0 0 * * *", "*/15 2 * * *", "*/20 * * * *",
    "40 * * * *", "7 */2 * * *", "*/7 0,23 * * *",
)  # fmt: skip
# Half an hour, two hours, at midnight, into the next day, westward, twice a year in Ramadan.
ODD_ZONES = {
    "Africa/Cairo", "Africa/Casablanca", "America/Havana", "America/Scoresbysund",
    "America/St_Johns", "Antarctica/Troll", "Asia/Beirut", "Australia/Lord_Howe", "Europe/Berlin",
    "Europe/Dublin", "Europe/London", "Pacific/Chatham", "Pacific/Easter",
}  # fmt: skip


def at(text: str, tz: str = BERLIN, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz), fold=fold)


def ticks(cron: Cron, after: datetime, number: int) -> list[str]:
    found: list[str] = []
    moment: datetime | None = after
    for _ in range(number):
        assert moment is not None
        moment = cron.after(moment)
        found.append("none" if moment is None else moment.isoformat())
    return found


# ---- every zone


def changes(tz: str, year: int) -> list[int]:
    """The hours in which the clock is set."""
    zone, found = ZoneInfo(tz), []
    moment, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    before = moment.astimezone(zone).utcoffset()
    while moment < end:
        moment += timedelta(hours=1)
        offset = moment.astimezone(zone).utcoffset()
        if offset != before:
            found.append(to_micros(moment))
            before = offset
    return found


def walls_of(expression: str, begin: datetime, end: datetime) -> set[datetime]:
    """The wall-clock times that fit, of days that all have 24 hours."""
    return set(takewhile(lambda wall: wall <= end, CronSim(expression, begin)))


def by_brute_force(expression: str, tz: str, begin: int, end: int) -> list[int]:
    """Every minute of real time whose wall clock fits; of fixed times each once, a skipped one when
    the clock goes on."""
    zone = ZoneInfo(tz)
    minute, hour, *_ = expression.split()
    real_time = "*" in minute or "*" in hour
    found: list[int] = []
    seen: set[datetime] = set()
    first, last = (to_datetime(each).replace(tzinfo=None) for each in (begin, end))
    fitting = walls_of(expression, first - timedelta(days=2), last + timedelta(days=2))
    wall: datetime | None = None
    for moment in range(begin, end + 1, MINUTE):
        before, wall = wall, to_datetime(moment).astimezone(zone).replace(tzinfo=None, fold=0)
        passed = [wall]
        if not real_time:
            passed = []
            step = wall if before is None else min(before + timedelta(minutes=1), wall)
            while step <= wall:
                passed += [] if step in seen else [step]
                seen.add(step)
                step += timedelta(minutes=1)
        if not fitting.isdisjoint(passed):
            found.append(moment)
    return found


def zones() -> list[str]:
    names = sorted(available_timezones() - {"localtime", "Factory"})
    return [name for name in names if name in ODD_ZONES or drawn(name, 60)]


@pytest.mark.parametrize("tz", zones())
def test_N3_ticks_are_those_of_the_wall_clock_across_a_year(tz: str) -> None:
    draw = random.Random(f"{seed(3)}{tz}")
    year = by_speed(2026, draw.randint(2000, 2036))
    expressions = draw.sample(EXPRESSIONS, by_speed(3, len(EXPRESSIONS)))
    middles = changes(tz, year) or [to_micros(datetime(year, 5, 17, 23, tzinfo=UTC))]
    for middle in middles:
        # From noon to noon in UTC, so that a fixed time is seen from its own first minute on.
        begin, end = middle - 14 * HOUR, middle + 14 * HOUR
        for expression in expressions:
            expected = by_brute_force(expression, tz, begin, end)
            # What came twice, or was skipped, before the first minute is not known by brute force.
            expected = [tick for tick in expected if tick > begin + 6 * HOUR]
            timing = Timing(expression, None, tz, None, None)
            assert walked(timing, begin + 6 * HOUR, end) == expected, (expression, tz)
            for moment in draw.sample(range(begin + 6 * HOUR, end - 12 * HOUR, MINUTE // 4), 200):
                tick = timing.after(moment)
                later = [each for each in expected if each > moment]
                assert tick is not None
                assert tick > moment
                assert tick == later[0] if later else tick > end, (expression, tz, moment)


def walked(timing: Timing, after: int, until: int) -> list[int]:
    found: list[int] = []
    tick = timing.after(after)
    while tick is not None and tick <= until:
        assert not found or tick > found[-1]
        found.append(tick)
        tick = timing.after(tick)
    return found


def test_N3_a_fixed_time_runs_once_in_both_nights() -> None:
    cron = Cron("30 2 * * *", tz=BERLIN)
    assert ticks(cron, at("2026-03-28 12:00"), 2) == [
        "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00",
    ]  # fmt: skip
    assert ticks(cron, at("2026-10-24 12:00"), 2) == [
        "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00",
    ]  # fmt: skip


def test_N3_a_time_that_is_asked_for_inside_the_repeated_hour_is_later() -> None:
    """cronsim's own first answer would be an hour ago."""
    cron = Cron("50 2 * * *", tz=BERLIN)
    assert ticks(cron, at("2026-10-25 02:40", fold=1), 1) == ["2026-10-26T02:50:00+01:00"]


def test_N3_several_fixed_times_in_the_lost_hour_are_one_tick() -> None:
    cron = Cron("0,20,40 2,3 * * *", tz=BERLIN)
    assert ticks(cron, at("2026-03-29 01:00"), 3) == [
        "2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00",
    ]  # fmt: skip


def test_N3_a_star_rests_in_the_lost_hour_and_goes_on_in_the_repeated_one() -> None:
    cron = Cron("*/30 2 * * *", tz=BERLIN)
    assert ticks(cron, at("2026-03-29 01:00"), 1) == ["2026-03-30T02:00:00+02:00"]
    assert ticks(cron, at("2026-10-25 02:10"), 4) == [
        "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00",
        "2026-10-26T02:00:00+01:00",
    ]  # fmt: skip


def test_N3_a_tick_is_not_lost_where_the_clock_goes_on_by_half_an_hour() -> None:
    """cronsim's own steps in a zone jump over it."""
    cron = Cron("40 * * * *", tz="Australia/Lord_Howe")
    assert ticks(cron, at("2026-10-04 01:40", "Australia/Lord_Howe"), 1) == [
        "2026-10-04T02:40:00+11:00"
    ]


# ---- every, start, end


def test_every_counts_from_1970_or_from_its_start() -> None:
    moment = datetime(2026, 5, 1, 12, 0, 7, tzinfo=UTC)
    assert ticks(Cron(every=20), moment, 2) == [
        "2026-05-01T12:00:20+00:00", "2026-05-01T12:00:40+00:00",
    ]  # fmt: skip
    start = datetime(2026, 5, 1, 12, 0, 3, tzinfo=UTC)
    later = Cron(every=timedelta(seconds=20), start=start)
    assert ticks(later, moment, 1) == ["2026-05-01T12:00:23+00:00"]


@pytest.mark.parametrize(
    "given", [{"every": 3600}, {"expression": "0 * * * *"}], ids=["every", "expression"]
)
def test_N12_start_and_end_are_inclusive(given: dict[str, Any]) -> None:
    start = datetime(2026, 5, 1, 12, tzinfo=UTC)
    cron = Cron(given.pop("expression", None), start=start, end=start + timedelta(hours=1), **given)
    assert ticks(cron, start - timedelta(days=3), 3) == [
        "2026-05-01T12:00:00+00:00", "2026-05-01T13:00:00+00:00", "none",
    ]  # fmt: skip


# ---- what is due


def test_N5_the_newest_due_ticks_are_found_and_all_are_counted() -> None:
    timing = Cron("*/10 * * * *").timing
    now = to_micros(datetime(2026, 5, 1, 12, 5, tzinfo=UTC))
    first = timing.after(now - 100 * MINUTE)
    assert first is not None
    due = timing.due(first, now, 3)
    newest = now - 5 * MINUTE
    assert due == ([newest - 20 * MINUTE, newest - 10 * MINUTE, newest], 10)
    assert timing.due(newest + 10 * MINUTE, now, 3) == ([], 0)


@pytest.mark.parametrize("tz", sorted(ODD_ZONES))
@pytest.mark.parametrize("expression", ["* * * * *", "*/15 2 * * *", "0-59 1-3 * * *", "5 0 1 * *"])
def test_N5_days_are_counted_as_they_are_walked(tz: str, expression: str) -> None:
    timing = Timing(expression, None, tz, None, None)
    for middle in changes(tz, 2026) or [to_micros(datetime(2026, 5, 17, 23, tzinfo=UTC))]:
        before, behind = by_speed((2, 1), (3, 2))  # days that are counted as a whole
        after, until = middle - before * DAY + 17 * MINUTE, middle + behind * DAY + 3 * MINUTE
        number = wall_clock(expression, tz).number(after, until)
        assert number == len(walked(timing, after, until))


@pytest.mark.parametrize("end", [None, 200 * DAY])
@pytest.mark.parametrize("tz", ["UTC", BERLIN])
def test_N5_a_year_of_minutes_is_counted_and_not_walked(tz: str, end: int | None) -> None:
    begin = to_micros(datetime(2025, 6, 1, tzinfo=UTC))
    timing = Timing("* * * * *", None, tz, None, None if end is None else begin + end)
    now = begin + 365 * DAY
    asked: list[int] = []
    walk = wall_clock("* * * * *", tz)
    real, after = walk.after, walk.after

    def counting(moment: int) -> int | None:
        asked.append(moment)
        return real(moment)

    walk.after = counting  # type: ignore[method-assign]
    try:
        due = timing.due(begin, now, 5)
    finally:
        walk.after = after  # type: ignore[method-assign]
    last = now if end is None else begin + end
    assert due.total == (last - begin) // MINUTE + 1
    assert due.ticks == [last - n * MINUTE for n in (4, 3, 2, 1, 0)]
    assert len(asked) < 3000


def test_N5_every_is_counted_by_arithmetic() -> None:
    timing = Cron(every=1).timing
    now = to_micros(datetime(2026, 5, 1, 12, 0, 0, 5, tzinfo=UTC))
    due = timing.due(now - 365 * DAY, now, 2)
    assert due.total == 365 * 86400
    assert due.ticks == [now - 5 - MICRO, now - 5]


# ---- jitter


def test_N7_jitter_is_never_before_the_tick_the_same_again_and_spread() -> None:
    jitter = 600 * MICRO
    lots = [jitter_of("report", tick * MINUTE, jitter) for tick in range(2000)]
    assert lots == [jitter_of("report", tick * MINUTE, jitter) for tick in range(2000)]
    assert min(lots) >= 0
    assert max(lots) <= jitter
    tenths = [sum(lot * 10 // (jitter + 1) == tenth for lot in lots) for tenth in range(10)]
    assert all(150 < number < 250 for number in tenths), tenths
    assert jitter_of("report", 0, jitter) != jitter_of("other", 0, jitter)
    assert jitter_of("report", 7, 0) == 0


# ---- words


def test_names_of_times_and_spaces() -> None:
    for name, expression in NICKNAMES.items():
        assert Cron(name).expression == Cron(name.upper()).expression == expression
    assert Cron("  0  3 *\t* * ").expression == "0 3 * * *"
    assert cron_of("@daily") == Cron("0 0 * * *")


def test_a_cron_says_in_words_when_it_ticks() -> None:
    assert Cron("0 3 * * *", tz=BERLIN).explain() == "At 03:00 every day, Europe/Berlin"
    assert Cron(every=90).explain() == "Every 1 min 30 s"


def test_a_cron_does_not_change() -> None:
    cron = Cron("0 3 * * *")
    with pytest.raises(AttributeError):
        cron.tz = BERLIN  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]
    assert hash(cron) == hash(Cron("0 3 * * *"))
    assert ON_TIME == MINUTE


AWARE = datetime(2026, 1, 1, tzinfo=UTC)
NAIVE = AWARE.replace(tzinfo=None)


def refusals() -> Iterator[tuple[dict[str, Any], str]]:
    six = "a cron expression has five fields; for less than a minute say every="
    yield {"expression": "0 0 3 * * *"}, six
    yield {"expression": "3 * *"}, six
    yield {"expression": "@reboot"}, "a schedule has no reboot; enqueue when your program starts"
    yield {"expression": "@fortnightly"}, "is no name of a time; there are @hourly"
    yield {"expression": "61 * * * *"}, "'61 \\* \\* \\* \\*' is no cron expression: Bad minute"
    yield {"expression": "*/0 * * * *"}, "is no cron expression"
    yield {"expression": "0 0 30 2 *"}, "is no cron expression: Bad day-of-month"
    yield {"expression": "0 0 31 2,4 *"}, "is no cron expression: Bad day-of-month"
    yield {"expression": "0 0 * 2 MON#5/2"}, "is no cron expression"
    yield {"expression": 7}, "a cron expression is text, not int"
    yield {"expression": "0 3 * * *", "every": 60}, "say an expression or every=, one of the two"
    yield {}, "say an expression or every=, one of the two"
    yield {"every": 0.5}, "every= is at least 1 second"
    yield {"every": 60, "jitter": 60}, "jitter= must be less than every="
    yield {"every": 60, "jitter": -1}, "jitter= cannot be negative"
    yield {"every": "60"}, "every is seconds or a timedelta, not str"
    yield {"every": 60, "start": NAIVE}, "start= is a datetime with a time zone"
    yield {"every": 60, "end": NAIVE}, "end= is a datetime with a time zone"
    yield {"every": 60, "start": AWARE, "end": AWARE - timedelta(1)}, "start= is later than end="
    zone = "no time zone named 'Mars/Base'; where the system has none, pip install tzdata"
    yield {"every": 60, "tz": "Mars/Base"}, zone
    yield {"every": 60, "tz": "../etc/passwd"}, "no time zone named"
    yield {"every": 60, "tz": "Europe"}, "no time zone named 'Europe'"
    yield {"every": 60, "tz": None}, "tz= is the name of a time zone"
    yield {"every": 60, "catch_up": -1}, "catch_up is a whole number from 0 to 1000, not -1"
    yield {"every": 60, "catch_up": True}, "catch_up is a whole number"
    yield {"every": 60, "overlap": "both"}, 'overlap is "skip", "queue", "allow" or "replace"'


@pytest.mark.parametrize(("given", "words"), [*refusals()])
def test_what_is_no_time_is_refused_when_it_is_made(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words.replace("(", "\\(")):
        Cron(given.pop("expression", None), **given)


def test_an_expression_without_a_tick_in_50_years_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="has no tick in 50 years"):
        Cron("0 0 */29 2 MON#5")


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="the moment is a datetime with a time zone"):
        Cron("@daily").after(NAIVE)


def test_what_is_neither_a_cron_nor_an_expression_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="cron= is a Cron or an expression"):
        cron_of(60)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
