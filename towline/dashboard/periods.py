"""How far a page looks back, and the steps of that time."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct
from starlette.exceptions import HTTPException

from ..app.rollups import By, EndedJobs
from ..times import to_datetime, to_micros
from .page import Ask, Param

# How far back, and how long a step is: roll-ups are kept by minute for 2 days, by hour for 90.
PERIODS: dict[str, tuple[timedelta, By]] = {
    "15m": (timedelta(minutes=15), "minute"),
    "1h": (timedelta(hours=1), "minute"),
    "6h": (timedelta(hours=6), "minute"),
    "24h": (timedelta(hours=24), "hour"),
    "7d": (timedelta(days=7), "hour"),
    "30d": (timedelta(days=30), "day"),
}
STEP = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
MICROSECOND = timedelta(microseconds=1)
PARAM = Param("range", f"How far back: {', '.join(PERIODS)}.")


class Step(Struct, frozen=True):
    """One step of a period, and what ended in it."""

    at: datetime
    ended: list[EndedJobs]


class Period(Struct, frozen=True):
    name: str
    by: By
    since: datetime
    until: datetime

    def steps(self, ended: list[EndedJobs]) -> list[Step]:
        """What ended, by step; also those in which nothing did."""
        found: dict[datetime | None, list[EndedJobs]] = {}
        for jobs in ended:
            found.setdefault(jobs.start, []).append(jobs)
        steps: list[Step] = []
        length = STEP[self.by]
        at = begin_of(self.since, length)
        while at <= self.until:
            steps.append(Step(at, found.get(at, [])))
            at += length
        return steps


def begin_of(moment: datetime, length: timedelta) -> datetime:
    """Where the step begins in which this moment is."""
    whole = length // MICROSECOND
    return to_datetime(to_micros(moment) // whole * whole)


def period_of(ask: Ask, default: str) -> Period:
    chosen = ask.text("range") or default
    if chosen not in PERIODS:
        raise HTTPException(400, f"range is one of {', '.join(PERIODS)}, not {chosen[:40]!r}")
    span, by = PERIODS[chosen]
    now = ask.app.now()
    # From where a step begins: roll-ups know no less, and a list of the same jobs is as long then.
    return Period(chosen, by, begin_of(now - span, STEP[by]), now)
