"""Lanes: the jobs of a queue that take turns with others, and what is told of them.

A job that has a lane waits in it (state 4 of `live`, without a reason to be parked) where another
would be pending. A lane has a row while something waits in it:

    open ──its limit is reached──► full ──a slot came free──► open
         ──its rate is used up, or a handler asks for it──► closed until a time ──► open
         ──nothing is left──► gone, or kept while what it has spent matters

Whoever changes something that concerns a lane tells so, in the same transaction: that a job waits
in it, that a slot of it came free, that it is to rest. SQLite writes that into the lane's row. On
PostgreSQL the row belongs to whoever holds the gate of the queue (`gate.py`), so others leave notes
and wait for nobody.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model import Live
from ..operation import Steps
from .ground import Ground, News

WAITING = (Live.PENDING, Live.PARKED)  # states in which a claim can find a job


def waiting_state(lane: str | None) -> Live:
    """The state of a job that could begin: pending, or in its lane."""
    return Live.PENDING if lane is None else Live.PARKED


def filled(queue: str, lane: str, priority: int) -> News:
    """A job waits in a lane."""
    return News(queue, lane, priority=priority)


def freed(queue: str, lane: str) -> News:
    """A job of a lane runs no more."""
    return News(queue, lane, free=1)


def resting(queue: str, lane: str, until: int, priority: int) -> News:
    """A handler asks that its lane rests."""
    return News(queue, lane, until=until, rank=priority)


def tell(store: Ground, news: Iterable[News], now: int) -> Steps[None]:
    """Say what happened to lanes: once for each, however many of its jobs it concerns."""
    told: dict[tuple[str, str], News] = {}
    for one in news:
        before = told.get(one[:2])
        told[one[:2]] = one if before is None else _together(before, one)
    if told:
        yield from store.announce([told[place] for place in sorted(told)], now)


def _together(one: News, two: News) -> News:
    return News(
        one.queue,
        one.lane,
        priority=_most(one.priority, two.priority),
        free=one.free or two.free,
        until=_most(one.until, two.until),
        rank=max(one.rank, two.rank),
    )


def _most(one: int | None, two: int | None) -> int | None:
    return max((n for n in (one, two) if n is not None), default=None)
