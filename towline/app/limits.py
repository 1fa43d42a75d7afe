"""Limits and lanes as callers declare, set and read them; each method that does I/O twice.

What is declared is written by a worker when it starts; what is set is written now. A limit belongs
to a queue, for all workers on all hosts; or to each lane of it, or to one lane instead.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from ..errors import InvalidSetting
from ..naming import check_name, check_queue
from ..operation import Op
from ..records import Claimed, LaneRecord, LimitRecord, NewJob
from ..store.limit import Numbers
from ..store.limits import EACH, QUEUE
from ..task.options import check_lane
from ..times import MICRO, Seconds, micros, to_datetime_or_none
from .answers import Page
from .filters import check_limit
from .reading import Reading

MOST_RATE = 1_000_000
SHORTEST = MICRO // 10  # of a window: a tenth of a second
STATES = ("open", "full", "resting", "empty")


class Limit(Struct, frozen=True):
    """How much of a queue (`lane` None), of each of its lanes ("*") or of one may run and begin.

    `running` and `began` are weights: what runs now, and what began in the last window, of the
    queue. `edited`: a person has changed what the code declares.
    """

    queue: str
    lane: str | None
    concurrency: int | None
    rate: int | None
    per: float | None  # seconds
    running: int | None
    began: int
    opens_at: datetime | None  # when the rate lets the next begin, if not now
    declared: bool
    edited: bool
    changed_at: datetime | None
    changed_by: str | None

    @classmethod
    def of(cls, record: LimitRecord) -> Limit:
        return cls(
            record.queue, record.lane or None, record.concurrency, record.rate,
            None if record.rate is None else _seconds(record.per), record.running, record.began,
            to_datetime_or_none(record.opens_at), record.declared, record.edited,
            to_datetime_or_none(record.changed_at), record.changed_by,
        )  # fmt: skip


class Lane(Struct, frozen=True):
    """A lane of a queue, with the limit that applies to it; there is one while jobs wait in it, or
    began lately under a rate.

    `state`: "open", "full", "resting" until `opens_at` (by its rate, or since a handler asked for
    it), or "empty". `waiting` is counted up to 1,000.
    """

    queue: str
    lane: str
    state: str
    waiting: int
    running: int
    served_at: datetime | None
    opens_at: datetime | None
    concurrency: int | None
    rate: int | None
    per: float | None
    began: int

    @classmethod
    def of(cls, record: LaneRecord) -> Lane:
        return cls(
            record.queue, record.lane, STATES[record.closed], record.waiting, record.running,
            to_datetime_or_none(record.served_at),
            # Of a full one it is when it would be looked at if it were forgotten.
            to_datetime_or_none(record.opens_at) if STATES[record.closed] == "resting" else None,
            record.concurrency, record.rate,
            None if record.rate is None else _seconds(record.per), record.began,
        )  # fmt: skip


class Limits(Reading):
    """Everything about limits."""

    def __init__(self) -> None:
        super().__init__()
        self.declared_limits: dict[tuple[str, str], Numbers] = {}  # by queue and lane

    def declare_limit(
        self,
        queue: str,
        *,
        lane: str | int | None = None,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Seconds = 60,
    ) -> None:
        """Say in code how much of a queue, of each of its lanes ("*") or of one may run at a time,
        and begin in any `per` seconds. A worker writes it when it starts; what `set_limit` has
        changed since stays."""
        numbers = check_numbers(queue, lane, concurrency, rate, per)
        if numbers == Numbers():
            raise InvalidSetting("declare_limit() needs concurrency= or rate=")
        place = queue, _text_of(lane) or QUEUE
        if place in self.declared_limits:
            raise InvalidSetting(f"the limit of {_named(queue, lane)} is declared already")
        self.declared_limits[place] = numbers

    def set_limit(
        self,
        queue: str,
        *,
        lane: str | int | None = None,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Seconds = 60,
        by: str | None = None,
        on: object = None,
    ) -> None:
        """Limit a queue, each of its lanes ("*") or one, now: 0 stops it, no number takes the limit
        away. Nothing that runs is stopped."""
        numbers = check_numbers(queue, lane, concurrency, rate, per)
        self.runner.run(self._store.set_limit(queue, _text_of(lane), numbers, by), on)

    async def aset_limit(
        self,
        queue: str,
        *,
        lane: str | int | None = None,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Seconds = 60,
        by: str | None = None,
        on: object = None,
    ) -> None:
        numbers = check_numbers(queue, lane, concurrency, rate, per)
        await self.runner.arun(self._store.set_limit(queue, _text_of(lane), numbers, by), on)

    def limits(self, queue: str | None = None, *, on: object = None) -> list[Limit]:
        """Limits by queue and lane, with how much of each is used."""
        return [Limit.of(record) for record in self.runner.run(self._limits(queue), on)]

    async def alimits(self, queue: str | None = None, *, on: object = None) -> list[Limit]:
        return [Limit.of(record) for record in await self.runner.arun(self._limits(queue), on)]

    def lanes(
        self, queue: str, *, limit: int = 50, cursor: str | None = None, on: object = None
    ) -> Page[Lane]:
        """A page of the lanes of a queue by name; `cursor` goes on after it."""
        return _page(*self.runner.run(self._lanes(queue, limit, cursor), on))

    async def alanes(
        self, queue: str, *, limit: int = 50, cursor: str | None = None, on: object = None
    ) -> Page[Lane]:
        return _page(*await self.runner.arun(self._lanes(queue, limit, cursor), on))

    # ---- shared by both twins

    def _limits(self, queue: str | None) -> Op[list[LimitRecord]]:
        return self._store.limits(check_name(queue, "queue"))

    def _lanes(
        self, queue: str, limit: int, cursor: str | None
    ) -> Op[tuple[list[LaneRecord], str | None]]:
        check_name(queue, "queue")
        return self._store.lanes(queue, check_limit(limit), check_name(cursor, "cursor"))

    def refuse_too_heavy(self, job: NewJob, before: Claimed | None = None) -> None:
        """A job heavier than a declared limit of its own would only ever run alone. A continuation
        that does not say its queue stays in its predecessor's, in its lane."""
        for child in job.children:
            self.refuse_too_heavy(child)
        if job.weight is None:
            return
        queue, lane = job.queue, job.lane
        if job.inherit_queue:
            if before is None:  # ended from outside: where it would be is not known here
                return
            queue, lane = before.queue, lane or before.lane
        places = [QUEUE] if lane is None else [QUEUE, self._lane_limit(queue, lane)]
        for place in places:
            numbers = self.declared_limits.get((queue, place))
            for most in (numbers.concurrency, numbers.rate) if numbers else ():
                if most is not None and 0 < most < job.weight:
                    of = _named(queue, None if place == QUEUE else place)
                    raise InvalidSetting(
                        f"weight {job.weight} is above the declared limit of {of}, which is {most}"
                    )

    def _lane_limit(self, queue: str, lane: str) -> str:
        return lane if (queue, lane) in self.declared_limits else EACH


def check_numbers(
    queue: str, lane: str | int | None, concurrency: object, rate: object, per: Seconds
) -> Numbers:
    """What a limit says, or a refusal that says why it cannot be."""
    if queue is None:
        raise InvalidSetting("queue is text of printable characters, not NoneType")
    check_queue(queue)
    if lane != EACH:
        check_lane(lane)
    if concurrency is not None:
        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 0:
            raise InvalidSetting(f"concurrency is a whole number from 0, not {concurrency!r}")
        if concurrency >= 2**31:
            raise InvalidSetting(f"concurrency {concurrency} is no limit: leave it out")
    if rate is not None and (
        isinstance(rate, bool) or not isinstance(rate, int) or not 1 <= rate <= MOST_RATE
    ):
        raise InvalidSetting(f"rate is a whole number from 1 to {MOST_RATE}, not {rate!r}")
    window = micros(per, "per")
    if window < SHORTEST:
        raise InvalidSetting(f"per is at least 0.1 seconds, not {per!r}")
    return Numbers(concurrency, rate, window if rate is not None else None)


def _page(records: list[LaneRecord], cursor: str | None) -> Page[Lane]:
    return Page([Lane.of(record) for record in records], cursor)


def _text_of(lane: str | int | None) -> str | None:
    """A lane as it is stored; it may be said as a number, as by the parameter that names it."""
    return None if lane is None else str(lane)


def _named(queue: str, lane: str | int | None) -> str:
    if lane is None:
        return f"queue {queue}"
    return f"each lane of queue {queue}" if lane == EACH else f"lane {lane} of queue {queue}"


def _seconds(per: int | None) -> float | None:
    return None if per is None else per / MICRO
