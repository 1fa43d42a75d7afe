"""Reading: one job or chain, pages of them, counts.

A page walks the one index its filter names, newest first, past a cursor; what else was asked for
is tested on the rows found. A page examines at most EXAMINED rows and may come back short with a
cursor. Open jobs, and jobs by queue or task, lie in groups that are walked side by side and merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import NotFound
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
    State,
    WorkerRecord,
    unknown_task,
)
from ..operation import Steps, operation
from ..sql import Query, Row
from .base import FOREVER, as_json, int_of
from .control import Control

EXAMINED = 10_000
COUNTED = 100_000
LANES = 500  # groups that are walked side by side; with more of them rows are walked by id
CLOCK_SLACK = 3_600_000_000  # clocks may step back: how far ids and times may disagree

Walk = Callable[[int, int], Steps[list[int]]]


@dataclass(slots=True, frozen=True)
class JobFilter:
    """Which jobs; times are microseconds of creation, since inclusive and until exclusive."""

    state: State | None = None
    outcome: Outcome | None = None
    task: str | None = None
    queue: str | None = None
    chain: int | None = None
    key: str | None = None
    label: str | None = None
    since: int | None = None
    until: int | None = None

    def fits(self, job: JobRecord) -> bool:
        return (
            (self.state is None or job.state is self.state)
            and (self.outcome is None or job.outcome is self.outcome)
            and (self.task is None or job.task == self.task)
            and (self.queue is None or job.queue == self.queue)
            and (self.chain is None or job.chain_id == self.chain)
            and (self.key is None or job.key == self.key)
            and (self.label is None or job.label == self.label)
            and (self.since is None or job.created_at >= self.since)
            and (self.until is None or job.created_at < self.until)
        )


@dataclass(slots=True, frozen=True)
class ChainFilter:
    """Which chains; the task, queue, key and label are those of the first job."""

    state: ChainState | None = None
    task: str | None = None
    key: str | None = None
    label: str | None = None
    since: int | None = None
    until: int | None = None

    def fits(self, chain: ChainRecord) -> bool:
        return (
            (self.state is None or chain.state is self.state)
            and (self.task is None or chain.task == self.task)
            and (self.key is None or chain.key == self.key)
            and (self.label is None or chain.label == self.label)
            and (self.since is None or chain.created_at >= self.since)
            and (self.until is None or chain.created_at < self.until)
        )


class Found(NamedTuple):
    """A page: its records, and the cursor that goes on after them (None at the end)."""

    records: list[Any]
    cursor: int | None


class Listing(Control):
    """Operations that only read."""

    @operation(reads=True)
    def chain(self, chain_id: int) -> Steps[tuple[ChainRecord, JobRecord]]:
        """A chain and its last job."""
        rows = yield self.sql.chain_records(ids=as_json([chain_id]))
        tail = yield from self.tail(chain_id)
        if not rows or tail is None:
            raise NotFound(f"there is no chain {chain_id}")
        return ChainRecord._make(rows[0]), tail

    @operation(reads=True)
    def ended(self, chain_id: int) -> Steps[JobRecord | None]:
        """The last job of a chain that has ended; None while it is open."""
        chain, tail = yield from self.chain(chain_id)
        return None if chain.state is ChainState.OPEN else tail

    @operation(reads=True)
    def same(self, job_id: int, created_at: int) -> Steps[None]:
        """Raise NotFound unless the job is still the one created at that time."""
        record = yield from self.one(job_id)
        if record.created_at != created_at:
            raise NotFound(f"job {job_id} is gone: it was rolled back or deleted")

    @operation(reads=True)
    def attempts(self, job_id: int) -> Steps[list[AttemptRecord]]:
        """Every attempt of a job, oldest first, the running one last."""
        yield from self.one(job_id)
        rows = yield self.sql.list_attempts(job_id=job_id)
        return [AttemptRecord._make(row) for row in rows]

    @operation(reads=True)
    def dependents(self, chain_id: int) -> Steps[list[DependentRecord]]:
        """Jobs that wait, or waited, for a chain."""
        rows = yield self.sql.find_dependents(chains=as_json([chain_id]))
        return sorted(map(DependentRecord._make, rows), key=lambda record: record.job_id)

    @operation(reads=True)
    def workers(self) -> Steps[list[WorkerRecord]]:
        """Registered workers."""
        return [WorkerRecord._make(row) for row in (yield self.sql.list_workers())]

    @operation(reads=True)
    def paused(self) -> Steps[list[str]]:
        """Names of paused queues."""
        return [str(name) for name, *_ in (yield self.sql.list_paused())]

    @operation(reads=True)
    def parked(self, limit: int = 1000) -> Steps[dict[str, int]]:
        """Tasks that no worker knew, with their jobs that are set aside; counts up to `limit`."""
        ids: list[int] = []
        for queue, priority in (yield self.sql.live_lanes(state=int(Live.PARKED))):
            rows = yield self.sql.walk_live_oldest(
                state=int(Live.PARKED), queue=queue, priority=priority,
                cursor=0, limit=limit - len(ids),
            )  # fmt: skip
            ids += [int_of(id) for (id,) in rows]
        found = yield from self.records(ids)
        return dict(Counter(r.task for r in found if r.parked_for == unknown_task(r.task)))

    @operation(reads=True)
    def describe(self) -> Steps[Row]:
        """What the database says about itself; each engine has columns of its own."""
        (row,) = yield self.sql.describe_database()
        return row

    @operation(reads=True)
    def jobs(
        self, filter: JobFilter, limit: int, cursor: int | None = None, newest: bool = True
    ) -> Steps[Found]:
        """A page of jobs."""
        walk = yield from self._job_walk(filter, newest)
        return (yield from self._page(walk, self.records, filter, limit, cursor, newest))

    @operation(reads=True)
    def chains(
        self, filter: ChainFilter, limit: int, cursor: int | None = None, newest: bool = True
    ) -> Steps[Found]:
        """A page of chains."""
        walk = yield from self._chain_walk(filter, newest)
        return (yield from self._page(walk, self.chain_records, filter, limit, cursor, newest))

    def chain_records(self, ids: Sequence[int]) -> Steps[list[ChainRecord]]:
        rows = yield self.sql.chain_records(ids=as_json(ids))
        found = {record.id: record for record in map(ChainRecord._make, rows)}
        return [found[id] for id in ids if id in found]

    @operation(reads=True)
    def counts(self) -> Steps[dict[str, dict[State, tuple[int, bool]]]]:
        """Jobs by queue and state; True marks a number that is "at least".

        Open jobs are counted from their rows up to a limit, ended ones from the roll-ups.
        """
        found: dict[str, dict[State, tuple[int, bool]]] = {}

        def add(queue: str, state: State, number: int, more: bool = False) -> None:
            before, was_more = found.setdefault(queue, {}).get(state, (0, False))
            found[queue][state] = before + number, more or was_more

        for live in Live:
            lanes = yield self.sql.live_lanes(state=int(live))
            queues = sorted({str(queue) for queue, _ in lanes})
            if len(queues) > LANES:
                rows = yield self.sql.count_lanes(state=int(live), limit=COUNTED + 1)
                numbers = {str(queue): int_of(number) for queue, number in rows}
                more = sum(numbers.values()) > COUNTED
                for queue in queues:
                    add(queue, LIVE_STATE[live], numbers.get(queue, 0), more)
                continue
            for queue in queues:
                ((number,),) = yield self.sql.count_lane(
                    state=int(live), queue=queue, limit=COUNTED + 1
                )
                exact = min(int_of(number), COUNTED)
                if live is Live.RUNNING:  # of which some were claimed ahead and have not begun
                    ((ahead,),) = yield self.sql.count_ahead(queue=queue, limit=COUNTED)
                    if ahead:
                        exact = max(exact - int_of(ahead), 0)
                        add(queue, State.PENDING, int_of(ahead))
                    if not exact:
                        continue
                add(queue, LIVE_STATE[live], exact, int_of(number) > COUNTED)
        for lane, outcome, number in (yield self.sql.sum_rollups()):
            add(str(lane), END_STATE[OUTCOMES[int_of(outcome)] or Outcome.FAILED], int_of(number))
        return found

    # ---- walks

    def _page(
        self,
        walk: Walk,
        fetch: Callable[[Sequence[int]], Steps[list[Any]]],
        filter: JobFilter | ChainFilter,
        limit: int,
        cursor: int | None,
        newest: bool,
    ) -> Steps[Found]:
        """Walk ids past the cursor, fetch, test, until the page is full or enough was examined."""
        low, high = yield from self._ids_of_times(filter.since, filter.until)
        position = high + 1 if newest else low - 1
        if cursor is not None:
            position = min(position, cursor) if newest else max(position, cursor)
        page: list[Any] = []
        examined = 0
        while len(page) < limit and examined < EXAMINED:
            least = 100 if examined else 0  # what does not fit comes in crowds
            size = min(max(limit - len(page), least), EXAMINED - examined, 1000)
            ids = yield from walk(position, size)
            ids = [id for id in ids if low <= id <= high]
            if not ids:
                return Found(page, None)
            examined += len(ids)
            for record in (yield from fetch(ids)):
                if filter.fits(record):
                    page.append(record)
                    if len(page) == limit:
                        return Found(page, record.id)
            position = ids[-1]
        return Found(page, position)

    def _job_walk(self, filter: JobFilter, newest: bool) -> Steps[Walk]:
        """Choose the index to ride: the narrowest that the filter names."""
        if filter.chain is not None:
            chain = filter.chain
            return self._walk(self._named("walk_chain_jobs", newest), chain_id=chain)
        if filter.key is not None:
            return self._walk(self._named("walk_key", newest), key=filter.key)
        if filter.label is not None:
            return self._walk(self._named("walk_label", newest), label=filter.label)
        if filter.state is not None and filter.state.open:
            return (yield from self._live_walk(filter, newest))
        if filter.state in (State.FAILED, State.CANCELLED):
            return self._walk(self._named("walk_bad", newest))
        if filter.queue is not None or filter.task is not None:
            return (yield from self._lane_walk(filter.queue, filter.task, newest))
        if filter.state is State.COMPLETED or filter.outcome is not None:
            return self._walk(self._named("walk_tried", newest))
        return self._walk(self._named("walk_jobs", newest))

    def _chain_walk(self, filter: ChainFilter, newest: bool) -> Steps[Walk]:
        if filter.key is not None:
            return self._walk(self._named("walk_key", newest), key=filter.key)
        if filter.label is not None:
            return self._walk(self._named("walk_label", newest), label=filter.label)
        if filter.state in (ChainState.FAILED, ChainState.CANCELLED):
            return self._walk(self._named("walk_bad_chains", newest))
        if filter.state is ChainState.OPEN:
            ((number,),) = yield self.sql.count_live()
            if int_of(number) <= EXAMINED:
                rows = yield self.sql.open_chain_ids()
                return _walk_list(sorted({int_of(id) for (id,) in rows}, reverse=newest), newest)
        if filter.task is not None:
            return (yield from self._lane_walk(None, filter.task, newest))
        return self._walk(self._named("walk_chains", newest))

    def _live_walk(self, filter: JobFilter, newest: bool) -> Steps[Walk]:
        query = self._named("walk_live", newest)
        walks: list[Walk] = []
        for live in Live:
            ahead = live is Live.RUNNING and filter.state is State.PENDING
            if LIVE_STATE[live] is not filter.state and not ahead:
                continue  # a job that was claimed ahead is pending until it begins
            for queue, priority in (yield self.sql.live_lanes(state=int(live))):
                if filter.queue in (None, queue):
                    walks.append(self._walk(query, state=int(live), queue=queue, priority=priority))
        return self._side_by_side(walks, newest)

    def _lane_walk(self, queue: str | None, task: str | None, newest: bool) -> Steps[Walk]:
        query = self._named("walk_lane", newest)
        if queue is not None and task is not None:
            return self._walk(query, queue=queue, task=task)
        lanes = yield self.sql.job_lanes()
        return self._side_by_side(
            [
                self._walk(query, queue=lane_queue, task=lane_task)
                for lane_queue, lane_task in lanes
                if queue in (None, lane_queue) and task in (None, lane_task)
            ],
            newest,
        )

    def _side_by_side(self, walks: Sequence[Walk], newest: bool) -> Walk:
        """Groups merged, unless they are too many: then all jobs by id, and pages may be short."""
        if len(walks) > LANES:
            return self._walk(self._named("walk_jobs", newest))
        return _merge(walks, newest)

    def _named(self, walk: str, newest: bool) -> Query:
        query: Query = getattr(self.sql, f"{walk}_{'newest' if newest else 'oldest'}")
        return query

    def _walk(self, query: Query, **params: Any) -> Walk:
        def walk(cursor: int, limit: int) -> Steps[list[int]]:
            rows = yield query(cursor=cursor, limit=limit, **params)
            return [int_of(id) for (id,) in rows]

        return walk

    def _ids_of_times(self, since: int | None, until: int | None) -> Steps[tuple[int, int]]:
        """The range of ids that can hold these times: ids grow with time, give or take a clock."""
        if since is None and until is None:
            return 0, FOREVER
        ((low, high),) = yield self.sql.id_bounds()
        low, high = int_of(low), int_of(high)
        first, last = low, high
        if since is not None:
            first = yield from self._first_id_after(since - CLOCK_SLACK, low, high)
        if until is not None:
            last = yield from self._first_id_after(until + CLOCK_SLACK, low, high)
        return first, last

    def _first_id_after(self, moment: int, low: int, high: int) -> Steps[int]:
        while low < high:
            middle = (low + high) // 2
            rows = yield self.sql.created_near(id=middle)
            if rows and int_of(rows[0][1]) < moment:
                low = max(int_of(rows[0][0]), middle) + 1
            else:
                high = middle
        return low


def _walk_list(ids: Sequence[int], newest: bool) -> Walk:
    def walk(cursor: int, limit: int) -> Steps[list[int]]:
        past = [id for id in ids if (id < cursor if newest else id > cursor)]
        return past[:limit]
        yield

    return walk


def _merge(walks: Sequence[Walk], newest: bool) -> Walk:
    """Walk groups side by side; cost grows with the groups, not with their rows."""

    def walk(cursor: int, limit: int) -> Steps[list[int]]:
        ids: list[int] = []
        for one in walks:
            ids += yield from one(cursor, limit)
        return sorted(ids, reverse=newest)[:limit]

    return walk
