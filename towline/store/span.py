"""The times that a list is about: of creation as a range of ids, of the end as a look at many jobs.

No index knows when jobs ended. Who asks for that walks the ids of jobs that may have, newest first,
and looks at nothing but their ends until one fits: ten thousand are looked at in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..operation import Steps
from ..records import JobRecord
from .ground import FOREVER, Ground, as_json, int_of

CLOCK_SLACK = 3_600_000_000  # clocks may step back: how far ids and times may disagree

Fetch = Callable[[Ground, Sequence[int]], Steps[list[JobRecord]]]


def ids_created(store: Ground, since: int | None, until: int | None) -> Steps[tuple[int, int]]:
    """The range of ids that can hold these times: ids grow with time, give or take a clock."""
    if since is None and until is None:
        return 0, FOREVER
    ((low, high),) = yield store.sql.id_bounds()
    low, high = int_of(low), int_of(high)
    first, last = low, high
    if since is not None:
        first = yield from _first_id_after(store, since - CLOCK_SLACK, low, high)
    if until is not None:
        last = yield from _first_id_after(store, until + CLOCK_SLACK, low, high)
    return first, last


def _first_id_after(store: Ground, moment: int, low: int, high: int) -> Steps[int]:
    while low < high:
        middle = (low + high) // 2
        rows = yield store.sql.created_near(id=middle)
        if rows and int_of(rows[0][1]) < moment:
            low = max(int_of(rows[0][0]), middle) + 1
        else:
            high = middle
    return low


def of_those_that_ended(fetch: Fetch, since: int | None, until: int | None) -> Fetch:
    """The same of jobs that ended from one time until before another."""

    def fetch_ended(store: Ground, ids: Sequence[int]) -> Steps[list[JobRecord]]:
        rows = yield store.sql.ended_jobs(
            jobs=as_json(ids), since=since or 0, until=FOREVER if until is None else until
        )
        ended = {int_of(id) for (id,) in rows}
        return (yield from fetch(store, [id for id in ids if id in ended]))

    return fetch_ended
