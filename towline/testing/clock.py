"""A clock that stands still until the test moves it."""

from __future__ import annotations

from datetime import datetime

from ..errors import InvalidSetting
from ..store.ground import host_clock
from ..times import Seconds, micros, to_datetime, to_micros


class Clock:
    """The time by which an app decides what is due: `Towline(url, clock=clock)`.

    It begins at the present moment, or where the test says, and never goes back.
    """

    def __init__(self, start: datetime | None = None) -> None:
        if start is not None and start.utcoffset() is None:
            raise InvalidSetting("a clock starts at a datetime with a time zone")
        self._time = host_clock() if start is None else to_micros(start)

    def __call__(self) -> int:
        return self._time

    @property
    def now(self) -> datetime:
        return to_datetime(self._time)

    def advance(self, by: Seconds) -> None:
        """Move on by seconds or a timedelta."""
        step = micros(by, "what a clock is advanced by")
        if step < 0:
            raise InvalidSetting("time does not go back: advance the clock by 0 or more")
        self._time += step

    def advance_to(self, time: int) -> None:
        """Move on to a time in microseconds; one that has passed changes nothing."""
        self._time = max(self._time, time)

    def __repr__(self) -> str:
        return f"<clock {self.now.isoformat()}>"
