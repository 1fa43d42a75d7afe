"""Limits as they are set, declared and read; lanes as they are listed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..operation import Steps
from ..records import LaneRecord, LimitRecord
from . import audit
from .audit import brief
from .ground import Ground, int_of
from .limit import NO_LIMIT, Numbers, Spent, numbers_of, read_spent, still_counts

QUEUE, EACH = "", "*"  # limit.lane of a queue itself, and of each of its lanes
MOST_WAITING = 1000  # jobs of a lane that are counted


def set_limit(
    store: Ground, queue: str, lane: str | None, numbers: Numbers, by: str | None
) -> Steps[None]:
    key = QUEUE if lane is None else lane
    yield from store.hold_gate(queue)
    now = yield from store.now()
    yield from _set(store, queue, key, Saying(numbers, None, None), by, now)
    chosen = json.dumps({"lane": lane, **numbers._asdict()}) if by is not None else None
    yield from audit.note(store, by, "limit", queue=queue, chosen=chosen)


class DeclaredLimits(NamedTuple):
    """What was applied of what the code declares, as (queue, lane)."""

    changed: list[tuple[str, str]]
    taken: list[tuple[str, str]]  # where people have set a limit at run time
    postponed: bool  # another transaction holds the gate of a queue: declare again soon


class Saying(NamedTuple):
    """What the code says of a limit: its numbers, as they are declared (None: no more), and in what
    all of it was declared."""

    numbers: Numbers
    declared: str | None
    declared_in: str | None


def declare_limits(
    store: Ground,
    declared: Mapping[tuple[str, str], Numbers],
    queues: Collection[str],
    digest: str,
) -> Steps[DeclaredLimits]:
    rows = yield store.sql.list_declared_limits()
    known = {(str(queue), str(lane)): stored for queue, lane, *stored in rows}
    wanted: dict[tuple[str, str], Saying] = {}
    same: list[tuple[str, str]] = []
    taken: list[tuple[str, str]] = []
    for place, numbers in sorted(declared.items()):
        text = json.dumps(numbers._asdict())
        before, before_in = known.get(place, ("", None))
        if before is None:
            taken.append(place)
        elif before != text:
            wanted[place] = Saying(numbers, text, digest)
        elif before_in != digest:
            same.append(place)
    for place in known.keys() - declared.keys():
        if place[0] in queues and known[place][0] is not None:
            wanted[place] = Saying(NO_LIMIT, None, None)
    if not wanted and not same:
        return DeclaredLimits([], taken, False)
    now = yield from store.now()
    touched = [*wanted, *same]
    held, _ = yield from store.hold_gates(sorted({queue for queue, _ in touched}), now)
    changed = [place for place in sorted(wanted) if place[0] in held]
    for queue, lane in changed:
        said = wanted[queue, lane]
        if said.declared is None:
            yield store.sql.forget_declared(queue=queue, lane=lane)
        yield from _set(store, queue, lane, said, None, now)
    for queue, lane in same:
        if queue in held:
            yield store.sql.declare_limit(queue=queue, lane=lane, declared_in=digest)
    return DeclaredLimits(changed, taken, not {queue for queue, _ in touched} <= set(held))


def _set(
    store: Ground, queue: str, lane: str, said: Saying, by: str | None, now: int
) -> Steps[None]:
    """Under the gate of the queue."""
    numbers = said.numbers
    yield store.sql.set_limit(
        queue=queue, lane=lane, concurrency=numbers.concurrency, rate=numbers.rate,
        per=numbers.per, declared=said.declared, declared_in=said.declared_in, now=now,
        by=brief(by),
    )  # fmt: skip
    if numbers == NO_LIMIT:
        yield store.sql.drop_limit(queue=queue, lane=lane)
    yield store.sql.reopen_lanes(queue=queue, lane=lane)
    yield from store.wake([queue])


def limits(store: Ground, queue: str | None) -> Steps[list[LimitRecord]]:
    now = yield from store.now()
    found: list[LimitRecord] = []
    running: dict[str, int] = {}
    of = None
    for name, lane, *numbers, spent, opens_at, declared, changed_at, changed_by in (
        yield store.sql.list_limits(queue=queue)
    ):
        if name != of:
            of = name
            rows = yield store.sql.running_lanes(queue=name)
            running = {str(each or QUEUE): int_of(weight) for each, weight, *_ in rows}
        limit = numbers_of(*numbers)
        runs = sum(running.values()) if lane == QUEUE else running.get(str(lane), 0)
        text = json.dumps(limit._asdict())
        found.append(
            LimitRecord(
                str(name), str(lane), *limit, None if lane == EACH else runs,
                began(spent, limit, now),
                None if opens_at is None or int_of(opens_at) <= now else int_of(opens_at),
                declared is not None, declared not in (None, text),
                None if changed_at is None else int_of(changed_at),
                None if changed_by is None else str(changed_by),
            )
        )  # fmt: skip
    return found


def began(spent: object, limit: Numbers, now: int) -> int:
    """How much of a rate is used just now."""
    if limit.rate is None or limit.per is None:
        return 0
    return sum(weight for _, weight in still_counts(read_spent(spent), now, limit.per))


def lanes(
    store: Ground, queue: str, limit: int, cursor: str | None
) -> Steps[tuple[list[LaneRecord], str | None]]:
    now = yield from store.now()
    rows = yield store.sql.list_lanes(
        queue=queue, cursor=cursor or "", limit=limit, most=MOST_WAITING
    )
    running = {}
    if rows:
        running = {
            str(lane): int_of(weight)
            for lane, weight, *_ in (yield store.sql.running_lanes(queue=queue))
        }
    found: list[LaneRecord] = []
    for lane, closed, served_at, opens_at, spent, _, *numbers, waiting in rows:
        bounds = numbers_of(*numbers)
        found.append(
            LaneRecord(
                queue, str(lane), int_of(closed), int_of(waiting), running.get(str(lane), 0),
                int_of(served_at), None if opens_at is None else int_of(opens_at), *bounds,
                began(spent, bounds, now),
            )
        )  # fmt: skip
    return found, found[-1].lane if len(found) == limit else None


class LaneState(NamedTuple):
    """How a lane stands: closed as its row says (None: it has none), until when, what it spent."""

    closed: int | None
    opens_at: int | None
    spent: Spent


def lane_of(store: Ground, queue: str, lane: str, now: int) -> Steps[tuple[LaneState, Numbers]]:
    """One lane, and the limit that applies to it."""
    params = {"now": now} if "now" in store.sql.read_lane.names else {}
    rows = yield store.sql.read_lane(queue=queue, lane=lane, **params)
    closed, opens_at, *numbers, spent = rows[0]
    state = LaneState(
        None if closed is None else int_of(closed),
        None if opens_at is None else int_of(opens_at),
        read_spent(spent),
    )
    return state, numbers_of(*numbers)
