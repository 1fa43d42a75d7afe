"""Reading: one job or chain, pages of them, counts.

A page walks the one index its filter names, newest first, past a cursor; what else was asked for
is tested on the rows found. A page examines at most EXAMINED rows and may come back short with a
cursor. Open jobs, and jobs by queue or task, lie in groups that are walked side by side and merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from ..model import (
    END_STATE,
    LIVE_STATE,
    OUTCOMES,
    AttemptRecord,
    ChainRecord,
    ChainState,
    DependentRecord,
    JobRecord,
    Live,
    Outcome,
    PausedRecord,
    State,
    WorkerRecord,
    unknown_task,
)
from ..operation import Steps
from ..sql import Query, Row, Scalar
from . import cascade, read
from .cascade import BAD
from .ground import FOREVER, Ground, int_of

EXAMINED = 10_000
COUNTED = 100_000
LANES = 500  # groups that are walked side by side; with more of them rows are walked by id
CLOCK_SLACK = 3_600_000_000  # clocks may step back: how far ids and times may disagree

R = TypeVar("R", JobRecord, ChainRecord)
S = TypeVar("S", State, ChainState)
Walk = Callable[[int, int], Steps[list[int]]]


class JobFilter(Struct, frozen=True):
    """Which jobs; times are microseconds of creation, since inclusive and until exclusive."""

    state: State | frozenset[State] | None = None
    outcome: Outcome | None = None
    task: str | None = None
    queue: str | None = None
    chain: int | None = None
    key: str | None = None
    label: str | None = None
    since: int | None = None
    until: int | None = None


class ChainFilter(Struct, frozen=True):
    """Which chains; the task, key and label are those of the first job."""

    state: ChainState | frozenset[ChainState] | None = None
    task: str | None = None
    key: str | None = None
    label: str | None = None
    since: int | None = None
    until: int | None = None


class RecordPage(NamedTuple, Generic[R]):
    """A page: its records, and the cursor that goes on after them (None at the end)."""

    records: list[R]
    cursor: int | None


def attempts(store: Ground, job_id: int) -> Steps[list[AttemptRecord]]:
    yield from read.job(store, job_id)
    rows = yield store.sql.list_attempts(job_id=job_id)
    return [AttemptRecord._make(row) for row in rows]


def dependents(store: Ground, chain_id: int) -> Steps[list[DependentRecord]]:
    found = yield from cascade.behind(store, [chain_id])
    return sorted(found, key=lambda record: record.job_id)


def workers(store: Ground) -> Steps[list[WorkerRecord]]:
    return [WorkerRecord._make(row) for row in (yield store.sql.list_workers())]


def paused(store: Ground) -> Steps[list[PausedRecord]]:
    return [PausedRecord._make(row) for row in (yield store.sql.list_paused())]


def parked(store: Ground, limit: int = 1000) -> Steps[dict[str, int]]:
    ids: list[int] = []
    for queue, priority in (yield store.sql.live_lanes(state=int(Live.PARKED))):
        rows = yield store.sql.walk_live_oldest(
            state=int(Live.PARKED), queue=queue, priority=priority,
            cursor=0, limit=limit - len(ids),
        )  # fmt: skip
        ids += [int_of(id) for (id,) in rows]
    found = yield from read.records(store, ids)
    return dict(Counter(r.task for r in found if r.parked_for == unknown_task(r.task)))


def jobs(
    store: Ground, filter: JobFilter, limit: int, cursor: int | None = None, newest: bool = True
) -> Steps[RecordPage[JobRecord]]:
    walk = yield from _job_walk(store, filter, newest)
    return (yield from _page(store, walk, read.records, filter, limit, cursor, newest))


def chains(
    store: Ground, filter: ChainFilter, limit: int, cursor: int | None = None, newest: bool = True
) -> Steps[RecordPage[ChainRecord]]:
    walk = yield from _chain_walk(store, filter, newest)
    return (yield from _page(store, walk, read.chain_records, filter, limit, cursor, newest))


def counts(store: Ground) -> Steps[dict[str, dict[State, tuple[int, bool]]]]:
    found: dict[str, dict[State, tuple[int, bool]]] = {}

    def add(queue: str, state: State, number: int, more: bool = False) -> None:
        before, was_more = found.setdefault(queue, {}).get(state, (0, False))
        found[queue][state] = before + number, more or was_more

    for live in Live:
        lanes = yield store.sql.live_lanes(state=int(live))
        queues = sorted({str(queue) for queue, _ in lanes})
        if len(queues) > LANES:
            rows = yield store.sql.count_lanes(state=int(live), limit=COUNTED + 1)
            numbers = {str(queue): int_of(number) for queue, number in rows}
            more = sum(numbers.values()) > COUNTED
            for queue in queues:
                add(queue, LIVE_STATE[live], numbers.get(queue, 0), more)
            continue
        for queue in queues:
            ((number,),) = yield store.sql.count_lane(
                state=int(live), queue=queue, limit=COUNTED + 1
            )
            exact = min(int_of(number), COUNTED)
            if live is Live.RUNNING:  # of which some were claimed ahead and have not begun
                ((ahead,),) = yield store.sql.count_ahead(queue=queue, limit=COUNTED)
                if ahead:
                    exact = max(exact - int_of(ahead), 0)
                    add(queue, State.PENDING, int_of(ahead))
                if not exact:
                    continue
            add(queue, LIVE_STATE[live], exact, int_of(number) > COUNTED)
    for lane, outcome, number in (yield store.sql.sum_rollups()):
        add(str(lane), END_STATE[OUTCOMES[int_of(outcome)] or Outcome.FAILED], int_of(number))
    return found


# ---- walks


def _page(
    store: Ground,
    walk: Walk,
    fetch: Callable[[Ground, Sequence[int]], Steps[list[R]]],
    filter: JobFilter | ChainFilter,
    limit: int,
    cursor: int | None,
    newest: bool,
) -> Steps[RecordPage[R]]:
    """Walk ids past the cursor, fetch, test, until the page is full or enough was examined."""
    fits = _test(filter)
    low, high = yield from _ids_of_times(store, filter.since, filter.until)
    position = high + 1 if newest else low - 1
    if cursor is not None:
        position = min(position, cursor) if newest else max(position, cursor)
    page: list[R] = []
    examined = 0
    while len(page) < limit and examined < EXAMINED:
        least = 100 if examined else 0  # what does not fit comes in crowds
        size = min(max(limit - len(page), least), EXAMINED - examined, 1000)
        ids = yield from walk(position, size)
        ids = [id for id in ids if low <= id <= high]
        if not ids:
            return RecordPage(page, None)
        examined += len(ids)
        for record in (yield from fetch(store, ids)):
            if fits(record):
                page.append(record)
                if len(page) == limit:
                    return RecordPage(page, record.id)
        position = ids[-1]
    return RecordPage(page, position)


def _test(filter: JobFilter | ChainFilter) -> Callable[[JobRecord | ChainRecord], bool]:
    """Whether a record is what was asked for; its chain is, which is what the walk goes by."""
    said = {name: value for name, value in asdict(filter).items() if value is not None}
    since, until = said.pop("since", 0), said.pop("until", FOREVER)
    said.pop("chain", None)

    def fits(record: JobRecord | ChainRecord) -> bool:
        return since <= record.created_at < until and all(
            getattr(record, name) in value
            if isinstance(value, frozenset)
            else getattr(record, name) == value
            for name, value in said.items()
        )

    return fits


def _states(state: S | frozenset[S] | None) -> frozenset[S]:
    """Those asked for; none of them when any will do."""
    if isinstance(state, frozenset):
        return state
    return frozenset() if state is None else frozenset({state})


def _job_walk(store: Ground, filter: JobFilter, newest: bool) -> Steps[Walk]:
    """Choose the index to ride: the narrowest that the filter names."""
    if filter.chain is not None:
        return _walk(store, "walk_chain_jobs", newest, chain_id=filter.chain)
    if filter.key is not None:
        return _walk(store, "walk_key", newest, key=filter.key)
    if filter.label is not None:
        return _walk(store, "walk_label", newest, label=filter.label)
    states = _states(filter.state)
    if states and State.COMPLETED not in states:
        return (yield from _state_walk(store, filter, newest))
    if filter.queue is not None or filter.task is not None:
        return (yield from _lane_walk(store, filter.queue, filter.task, newest))
    if filter.outcome is not None or (states and not any(state.open for state in states)):
        return _walk(store, "walk_tried", newest)
    return _walk(store, "walk_jobs", newest)


def _chain_walk(store: Ground, filter: ChainFilter, newest: bool) -> Steps[Walk]:
    if filter.key is not None:
        return _walk(store, "walk_key", newest, key=filter.key)
    if filter.label is not None:
        return _walk(store, "walk_label", newest, label=filter.label)
    states = _states(filter.state)
    if states and states.issubset(BAD):
        return _walk(store, "walk_bad_chains", newest)
    if states == {ChainState.OPEN}:
        ((number,),) = yield store.sql.count_live()
        if int_of(number) <= EXAMINED:
            rows = yield store.sql.open_chain_ids()
            return _walk_list(sorted({int_of(id) for (id,) in rows}, reverse=newest), newest)
    if filter.task is not None:
        return (yield from _lane_walk(store, None, filter.task, newest))
    return _walk(store, "walk_chains", newest)


def _state_walk(store: Ground, filter: JobFilter, newest: bool) -> Steps[Walk]:
    """Jobs in these states, of which none is `completed`."""
    states = _states(filter.state)
    walks: list[Walk] = []
    for live in Live:
        ahead = live is Live.RUNNING and State.PENDING in states
        if LIVE_STATE[live] not in states and not ahead:
            continue  # a job that was claimed ahead is pending until it begins
        for queue, priority in (yield store.sql.live_lanes(state=int(live))):
            if filter.queue in (None, queue):
                lane = {"state": int(live), "queue": queue, "priority": priority}
                walks.append(_walk(store, "walk_live", newest, **lane))
    if not states.isdisjoint({State.FAILED, State.CANCELLED}):
        walks.append(_walk(store, "walk_bad", newest))
    return _side_by_side(store, newest, walks)


def _lane_walk(store: Ground, queue: str | None, task: str | None, newest: bool) -> Steps[Walk]:
    lanes: list[Row] = [(queue, task)]
    if queue is None or task is None:
        lanes = yield store.sql.job_lanes()
    walks = [
        _walk(store, "walk_lane", newest, queue=q, task=t)
        for q, t in lanes
        if queue in (None, q) and task in (None, t)
    ]
    return _side_by_side(store, newest, walks)


def _side_by_side(store: Ground, newest: bool, walks: Sequence[Walk]) -> Walk:
    """Groups walked side by side and merged: the cost grows with the groups, not with their rows.
    Too many are not: then all jobs by id, and pages may be short."""
    if len(walks) > LANES:
        return _walk(store, "walk_jobs", newest)
    if len(walks) == 1:
        return walks[0]

    def walk(cursor: int, limit: int) -> Steps[list[int]]:
        ids: set[int] = set()  # one that was retried is in two groups
        for one in walks:
            ids |= set((yield from one(cursor, limit)))
        return sorted(ids, reverse=newest)[:limit]

    return walk


def _walk(store: Ground, name: str, newest: bool, **params: Scalar) -> Walk:
    query: Query = getattr(store.sql, f"{name}_{'newest' if newest else 'oldest'}")

    def walk(cursor: int, limit: int) -> Steps[list[int]]:
        rows = yield query(cursor=cursor, limit=limit, **params)
        return [int_of(id) for (id,) in rows]

    return walk


def _walk_list(ids: Sequence[int], newest: bool) -> Walk:
    def walk(cursor: int, limit: int) -> Steps[list[int]]:
        past = [id for id in ids if (id < cursor if newest else id > cursor)]
        return past[:limit]
        yield

    return walk


def _ids_of_times(store: Ground, since: int | None, until: int | None) -> Steps[tuple[int, int]]:
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
