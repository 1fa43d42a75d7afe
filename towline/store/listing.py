"""Reading: one job or chain, and pages of them.

A page walks the one index its filter names, newest first, past a cursor; what else was asked for
is tested on the rows found. A page examines at most EXAMINED rows and may come back short with a
cursor. Open jobs, and jobs by queue or task, lie in groups that are walked side by side and merged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import asdict

from ..model import LIVE_STATE, ChainState, Live, Outcome, State, unknown_task
from ..operation import Query, Row, Scalar, Steps
from ..records import (
    AttemptRecord,
    ChainRecord,
    DependentRecord,
    JobRecord,
    PausedRecord,
    WorkerRecord,
)
from . import cascade, read
from .cascade import BAD
from .ground import FOREVER, Ground, as_json, chunks, int_of
from .span import ids_created, of_those_that_ended

EXAMINED = 10_000
FEW_CHAINS = 1000  # of one task, whose jobs are listed one by one
STRIPS = 500  # groups that are walked side by side; with more of them rows are walked by id
NO_ERROR = ""  # as a kind of error: none was raised

R = TypeVar("R", JobRecord, ChainRecord)
S = TypeVar("S", State, ChainState)
Walk = Callable[[int, int], Steps[list[int]]]


class JobFilter(Struct, frozen=True):
    """Which jobs; times are microseconds, since inclusive and until exclusive: of creation, and of
    the end, which open jobs do not have. Outcome and kind of error are the last attempt's."""

    state: State | frozenset[State] | None = None
    outcome: Outcome | None = None
    task: str | None = None
    queue: str | None = None
    chain: int | None = None
    key: str | None = None
    label: str | None = None
    lane: str | None = None
    since: int | None = None
    until: int | None = None
    ids: frozenset[int] | None = None
    schedule: str | None = None
    roots: bool | None = None  # True: first jobs of their chains
    chain_task: str | None = None  # of the first job of its chain
    worker: str | None = None  # by name: that runs it, or ran its last attempt
    ended_since: int | None = None
    ended_until: int | None = None
    error_type: str | None = None  # a class with its module, or NO_ERROR

    @property
    def by_end(self) -> bool:
        return self.ended_since is not None or self.ended_until is not None


class ChainFilter(Struct, frozen=True):
    """Which chains; the task, key and label are those of the first job."""

    state: ChainState | frozenset[ChainState] | None = None
    task: str | None = None
    key: str | None = None
    label: str | None = None
    since: int | None = None
    until: int | None = None
    ids: frozenset[int] | None = None


class RecordPage(NamedTuple, Generic[R]):
    """A page: its records, and the cursor that goes on after them (None at the end)."""

    records: list[R]
    cursor: int | None


def attempts(store: Ground, job_id: int) -> Steps[list[AttemptRecord]]:
    yield from read.job(store, job_id)
    return (yield from attempts_of(store, [job_id])).get(job_id, [])


def attempts_of(store: Ground, jobs: Sequence[int]) -> Steps[dict[int, list[AttemptRecord]]]:
    found: dict[int, list[AttemptRecord]] = {}
    for chunk in chunks(jobs):
        for row in (yield store.sql.list_attempts(jobs=as_json(chunk))):
            record = AttemptRecord._make(row)
            found.setdefault(record.job_id, []).append(record)
    return found


def dependents(store: Ground, chain_id: int) -> Steps[list[DependentRecord]]:
    found = yield from cascade.behind(store, [chain_id])
    return sorted(found, key=lambda record: record.job_id)


def workers(store: Ground) -> Steps[list[WorkerRecord]]:
    return [WorkerRecord._make(row) for row in (yield store.sql.list_workers())]


def paused(store: Ground) -> Steps[list[PausedRecord]]:
    return [PausedRecord._make(row) for row in (yield store.sql.list_paused())]


def parked(store: Ground, limit: int = 1000) -> Steps[dict[str, int]]:
    rows = yield store.sql.count_parked(limit=limit)
    tasks = unknown_task("")
    return {
        str(reason).removeprefix(tasks): int_of(number)
        for reason, number in rows
        if str(reason).startswith(tasks)
    }


def jobs(
    store: Ground, filter: JobFilter, limit: int, cursor: int | None = None, newest: bool = True
) -> Steps[RecordPage[JobRecord]]:
    walk = yield from _job_walk(store, filter, newest)
    fetch = read.records if filter.chain_task is None else _of_chain_task(filter.chain_task)
    if filter.by_end:
        fetch = of_those_that_ended(fetch, filter.ended_since, filter.ended_until)
    return (yield from _page(store, walk, fetch, filter, limit, cursor, newest))


def chains(
    store: Ground, filter: ChainFilter, limit: int, cursor: int | None = None, newest: bool = True
) -> Steps[RecordPage[ChainRecord]]:
    walk = yield from _chain_walk(store, filter, newest)
    return (yield from _page(store, walk, read.chain_records, filter, limit, cursor, newest))


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
    low, high = yield from ids_created(store, filter.since, _created_before(filter))
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


def _created_before(filter: JobFilter | ChainFilter) -> int | None:
    """What has ended was created before that."""
    ended = filter.ended_until if isinstance(filter, JobFilter) else None
    return min((time for time in (filter.until, ended) if time is not None), default=None)


def _test(filter: JobFilter | ChainFilter) -> Callable[[JobRecord | ChainRecord], bool]:
    """Whether a record is what was asked for; its chain is, which is what the walk goes by."""
    said = {name: value for name, value in asdict(filter).items() if value is not None}
    since, until = said.pop("since", 0), said.pop("until", FOREVER)
    said.pop("chain", None)
    said.pop("chain_task", None)  # nor is that of its chain, which is what was fetched by
    if "ids" in said:
        said["id"] = said.pop("ids")
    if said.pop("roots", False):
        said["position"] = 0
    if "error_type" in said:
        said["last_error_type"] = said.pop("error_type") or None
    tried = "last_error_type" in said  # no attempt has raised nothing, either
    worker = said.pop("worker", None)
    by_end = [said.pop(name, None) for name in ("ended_since", "ended_until")] != [None, None]

    def fits(record: JobRecord | ChainRecord) -> bool:
        if worker is not None and isinstance(record, JobRecord) and worker != _worker_of(record):
            return False
        if by_end and isinstance(record, JobRecord) and record.live_state is not None:
            return False  # it was retried since it was looked at
        if tried and isinstance(record, JobRecord) and record.last_outcome is None:
            return False
        return since <= record.created_at < until and all(
            getattr(record, name) in value
            if isinstance(value, frozenset)
            else getattr(record, name) == value
            for name, value in said.items()
        )

    return fits


def _worker_of(record: JobRecord) -> str | None:
    return record.last_worker if record.worker is None else record.worker


def _states(state: S | frozenset[S] | None) -> frozenset[S]:
    """Those asked for; none of them when any will do."""
    if isinstance(state, frozenset):
        return state
    return frozenset() if state is None else frozenset({state})


def _job_walk(store: Ground, filter: JobFilter, newest: bool) -> Steps[Walk]:
    """Choose the index to ride: the narrowest that the filter names."""
    if filter.chain is not None:
        return _walk(store, "walk_chain_jobs", newest, chain_id=filter.chain)
    if filter.ids is not None:
        return _walk_list(filter.ids, newest)
    if filter.key is not None:
        return _walk(store, "walk_key", newest, key=filter.key)
    if filter.schedule is not None:
        return _walk(store, "walk_schedule", newest, schedule=filter.schedule)
    if filter.label is not None:
        return _walk(store, "walk_label", newest, label=filter.label)
    states = _states(filter.state)
    if states and State.COMPLETED not in states:
        return (yield from _state_walk(store, filter, newest))
    if filter.queue is not None or filter.task is not None:
        return (yield from _strip_walk(store, filter.queue, filter.task, newest))
    if filter.chain_task is not None:
        return (yield from _chain_task_walk(store, filter, filter.chain_task, newest))
    if filter.worker is not None and not states:
        return (yield from _tried_or_running_walk(store, newest))
    tried = filter.outcome is not None or filter.error_type is not None or filter.by_end
    if tried or (states and not any(state.open for state in states)):
        return _walk(store, "walk_tried", newest)
    if filter.roots:
        return _walk(store, "walk_chains", newest)
    return _walk(store, "walk_jobs", newest)


def _chain_task_walk(store: Ground, filter: JobFilter, task: str, newest: bool) -> Steps[Walk]:
    """Jobs of chains that began with this task: of few chains each one; of many all jobs by id, of
    which many fit then."""
    roots = yield from _strip_walk(store, None, task, newest)
    if filter.roots:
        return roots
    found = yield from roots(FOREVER if newest else 0, FEW_CHAINS)
    if len(found) == FEW_CHAINS:
        return _walk(store, "walk_jobs", newest)
    rows = yield store.sql.later_jobs(chains=as_json(found), limit=EXAMINED)
    if len(rows) == EXAMINED:
        return _walk(store, "walk_jobs", newest)
    return _walk_list({*found, *(int_of(id) for (id,) in rows)}, newest)


def _of_chain_task(task: str) -> Callable[[Ground, Sequence[int]], Steps[list[JobRecord]]]:
    def fetch(store: Ground, ids: Sequence[int]) -> Steps[list[JobRecord]]:
        found = yield from read.records(store, ids)
        chains = sorted({record.chain_id for record in found})
        fitting: set[int] = set()
        for chunk in chunks(chains):
            rows = yield store.sql.chain_tasks(chains=as_json(chunk))
            fitting.update(int_of(id) for id, began_with in rows if began_with == task)
        return [record for record in found if record.chain_id in fitting]

    return fetch


def _tried_or_running_walk(store: Ground, newest: bool) -> Steps[Walk]:
    """Jobs that some worker has run, or runs."""
    walks = [_walk(store, "walk_tried", newest)]
    for queue, priority in (yield store.sql.live_strips(state=int(Live.RUNNING))):
        strip = {"state": int(Live.RUNNING), "queue": queue, "priority": priority}
        walks.append(_walk(store, "walk_live", newest, **strip))
    return _side_by_side(store, newest, walks)


def _chain_walk(store: Ground, filter: ChainFilter, newest: bool) -> Steps[Walk]:
    if filter.ids is not None:
        return _walk_list(filter.ids, newest)
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
            return _walk_list({int_of(id) for (id,) in rows}, newest)
    if filter.task is not None:
        return (yield from _strip_walk(store, None, filter.task, newest))
    return _walk(store, "walk_chains", newest)


def _state_walk(store: Ground, filter: JobFilter, newest: bool) -> Steps[Walk]:
    """Jobs in these states, of which none is `completed`."""
    states = _states(filter.state)
    walks: list[Walk] = []
    for live in Live:
        ahead = live is Live.RUNNING and State.PENDING in states
        if LIVE_STATE[live] not in states and not ahead:
            continue  # a job that was claimed ahead is pending until it begins
        for queue, priority in (yield from _live_strips(store, live, filter.queue)):
            strip = {"state": int(live), "queue": queue, "priority": priority}
            walks.append(_walk(store, "walk_live", newest, **strip))
    if not states.isdisjoint({State.FAILED, State.CANCELLED}):
        walks.append(_walk(store, "walk_bad", newest))
    return _side_by_side(store, newest, walks)


def _live_strips(store: Ground, live: Live, queue: str | None) -> Steps[list[Row]]:
    """The groups of a state, of this queue only if one is named: others cost nothing then."""
    if queue is None:
        return (yield store.sql.live_strips(state=int(live)))
    rows = yield store.sql.live_priorities(state=int(live), queue=queue)
    return [(queue, priority) for (priority,) in rows]


def _strip_walk(store: Ground, queue: str | None, task: str | None, newest: bool) -> Steps[Walk]:
    strips: list[Row] = [(queue, task)]
    if queue is None or task is None:
        strips = yield store.sql.job_strips()
    walks = [
        _walk(store, "walk_strip", newest, queue=q, task=t)
        for q, t in strips
        if queue in (None, q) and task in (None, t)
    ]
    return _side_by_side(store, newest, walks)


def _side_by_side(store: Ground, newest: bool, walks: Sequence[Walk]) -> Walk:
    """Groups walked side by side and merged: the cost grows with the groups, not with their rows.
    Too many are not: then all jobs by id, and pages may be short."""
    if len(walks) > STRIPS:
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


def _walk_list(ids: Collection[int], newest: bool) -> Walk:
    ordered = sorted(ids, reverse=newest)

    def walk(cursor: int, limit: int) -> Steps[list[int]]:
        past = [id for id in ordered if (id < cursor if newest else id > cursor)]
        return past[:limit]
        yield

    return walk
