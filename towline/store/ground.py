"""The ground of every operation: an engine's statements, the clock, ids, and the steps that an
engine may take in its own way.

SQLite has one writer, which holds everything, so there is nothing to lock: most steps here answer
at once. An engine with many writers at a time overrides them:

    a chain that ends, opens again or begins to wait   is held: no job begins to wait for it
    a chain that a job begins to wait for              is shared: it stays as it is
    a job that is acted on from outside                is held, its chain first
    what a worker ends                                 is held without waiting, or left for later
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from ..model import unknown_task
from ..operation import ENDED, Mark, Query, Row, Statement, Steps
from ..records import Claimed
from ..sql import Queries
from .columns import BUCKETS, COUNTED, ROLLUP, RUN, WAIT

if TYPE_CHECKING:
    from ..operation import Op
    from .edges import Placed
    from .enqueue import Stand
    from .finish import Verdict
    from .turn import Turn

T = TypeVar("T")
Clock = Callable[[], int]

KEY = ("queue", "priority", "job_id")
EDGE = ("chain_id", "job_id", "position", "name", "trace", "in_line")
MINUTE = 60_000_000
OUTSIDE = 0  # roll-up slot of endings that no worker made
CRASH_LIMIT = 3
FOREVER = 2**62  # later than any time in microseconds
CHUNK = 1000  # rows per statement

_quick = msgspec.json.Encoder().encode
_names = msgspec.json.Decoder(list[str]).decode
_escaped = json.JSONEncoder(separators=(",", ":")).encode  # dumps() would make one each time


def host_clock() -> int:
    return time.time_ns() // 1000


class EndedJob(Struct, gc=False):
    """An ended job, for the roll-up: how long it ran, and had waited; removed ones count less."""

    queue: str
    task: str
    outcome: int
    duration: int | None = None
    waited: int = 0
    ended: int = 1
    removed: int = 0


class News(NamedTuple):
    """What happened to a lane: something waits in it, of this priority; a slot of it came free; it
    is to rest until a time. `rank`: the priority of the job that asks for that."""

    queue: str
    lane: str
    priority: int | None = None
    free: int | None = None
    until: int | None = None
    rank: int = 0


class Reserved(NamedTuple):
    """Endings that can be written now; those that must wait, since another transaction holds what
    they need. `alone`: nothing is behind the chains."""

    ready: Sequence[Verdict]
    later: Sequence[Verdict] = ()
    alone: bool = False


class Ground:
    """Statements, clock, ids, and the steps an engine may override. Only portable scalars go into
    a statement."""

    crash_limit = CRASH_LIMIT
    # Microseconds after which a lane that was full is looked at all the same; None: never.
    backstop: int | None = 30_000_000

    def draw(self, now: int) -> int:
        """Who of several parties begins: drawn by the clock, so that with room for one all of them
        come in their turn."""
        return now * 0x9E3779B1 >> 16

    def __init__(self, sql: Queries, clock: Clock = host_clock) -> None:
        self.sql = sql
        self.clock = clock

    def now(self) -> Steps[int]:
        """The time that decides, in microseconds. SQLite has one host, so its clock; another
        engine asks its database."""
        return self.clock()
        yield  # a generator, so that an engine may ask its database instead

    def new_ids(self, number: int) -> Steps[Sequence[int]]:
        """Ids for new jobs, growing; the writer lock keeps them ours until the commit."""
        ((first,),) = yield self.sql.next_job_id()
        return range(int_of(first), int_of(first) + number)

    # ---- what an operation locks before it reads what it will act on

    def hold_chains(self, chains: Iterable[int]) -> Steps[None]:
        """Chains that are about to end, to open again or to wait."""
        return
        yield

    def hold_jobs(self, jobs: Iterable[int], *, behind: bool = False) -> Steps[bool]:
        """Jobs that are about to be changed from outside, their chains first. `behind`: what waits
        behind them is followed, too, and must be seen as it is by now. True: what was read of them
        before may have changed."""
        return False
        yield

    def share_blockers(self, jobs: Iterable[int]) -> Steps[None]:
        """The chains that these jobs wait for stay as they are."""
        return
        yield

    def hold_for_replacing(self, keys: Collection[Row], coming: Collection[int]) -> Steps[None]:
        """The chains that have these keys are about to wait for those that are coming: lock them,
        what they wait for by now, and all that those wait for, in the order of the ids."""
        return
        yield

    def upstream(self, chains: Iterable[int], reopened: bool) -> Steps[set[int]]:
        """These chains and all that they wait for in turn, which stays so."""
        return (yield from self.find_upstream(chains, reopened))

    def find_upstream(self, chains: Iterable[int], reopened: bool) -> Steps[set[int]]:
        """The same as it is just now."""
        rows = yield self.sql.find_upstream(chains=as_json(chains), reopened=int(reopened))
        return {int_of(id) for (id,) in rows}

    def hold_workers(self, dead: set[int], gone: Collection[int], now: int) -> Steps[set[int]]:
        """Of these workers, those that are still dead and now ours to sweep."""
        return dead
        yield

    def is_registered(self, worker: int, name: str) -> Steps[bool]:
        """Whether a worker whose row could not be renewed is there all the same."""
        return False
        yield

    def hold_to_delete(self, chains: Sequence[int], jobs: Collection[int]) -> Steps[bool]:
        """Chains that are about to be deleted; False if they have other jobs by now."""
        return True
        yield

    def hold_old(self, rows: Sequence[Row]) -> Steps[Sequence[Row]]:
        """Of these ended chains (id, state, created_at, ended_at), those now ours to prune."""
        return rows
        yield

    def prune_position(self) -> Steps[int | None]:
        """Where retention stopped; None while another worker prunes."""
        marks = yield self.sql.read_mark(name="prune")
        return int_of(marks[0][0]) if marks else 0

    def hold_schedules(self, names: Collection[str], *, wait: bool = True) -> Steps[set[str]]:
        """Schedules that are about to be changed; without waiting, those that nobody else holds."""
        return set(names)
        yield

    def hold_key(self, key: str) -> Steps[None]:
        """A key that stands for one job, whatever its task: others who say so wait."""
        return
        yield

    def share_now(self, chain: int) -> Steps[bool]:
        """A chain that a job is about to wait for stays as it is; False: somebody holds it."""
        return True
        yield

    def hold_end_now(self, chain: int) -> Steps[bool]:
        """All that the end of a chain touches, without waiting; False: somebody holds it."""
        return True
        yield

    def reserve(self, verdicts: Sequence[Verdict]) -> Steps[Reserved]:
        """All that these endings will touch, without waiting for another transaction."""
        return Reserved(verdicts)
        yield

    # ---- what an engine may do in fewer statements

    def insert_runs(
        self, placed: Sequence[Placed], stands: Sequence[Stand], now: int
    ) -> Steps[Sequence[tuple[Placed, Stand]]]:
        """Store jobs that differ in their arguments only in a quicker way, where an engine has
        one; return the others."""
        return list(zip(placed, stands, strict=True))
        yield

    def insert_edges(self, edges: Sequence[Row]) -> Steps[None]:
        """That jobs wait for chains."""
        for chunk in chunks(edges):
            yield self.sql.insert_blockers.many(EDGE, chunk)

    def settle(
        self, verdicts: Sequence[Verdict], worker: str | None, slot: int, now: int
    ) -> Steps[list[Verdict]]:
        """End the plainest in a quicker way, where an engine has one; return those."""
        return []
        yield

    # A turn comes again soon: where an engine has much to pass on its way to the first job, a look
    # of it need not be `whole`: it may begin where the last one did. `look_again` says until when.

    def promote(self, limit: int, now: int, *, whole: bool = True) -> Steps[int]:
        """scheduled → pending, of those whose time has come, oldest first; how many."""
        rows = yield self.sql.find_due(now=now, limit=limit)
        if rows:
            yield self.sql.promote_jobs.many(KEY, [row[:3] for row in rows])
            yield from self.tell_filled([(queue, p, lane) for queue, p, _, lane in rows], now)
        return len(rows)

    def take_pending(
        self, worker: int, queues: Sequence[str], room: int, free: int, name: str | None, now: int,
        *, whole: bool = True,
    ) -> Steps[list[Claimed]]:  # fmt: skip
        """pending → running, in order of claiming; the first `free` begin at once, but not those
        that one more loss would fail: they wait until nothing else runs beside them."""
        raise NotImplementedError

    def claim_alone(
        self, worker: int, name: str, queues: Sequence[str], room: int, ahead: int
    ) -> Op[Turn] | None:
        """A turn that only claims, from queues without limits and lanes; None where that is not
        less than a whole one. Nothing is promoted, and what comes too late is claimed."""
        return None

    def count_pending(
        self, queues: Sequence[str], most: int, tasks: Sequence[str], worker: int | None, now: int
    ) -> Steps[tuple[int, bool, int | None]]:
        """How many jobs are pending in these queues, up to `most` of each; whether one of these
        tasks is parked; when the next tick of one is. Whole, unless it is for a worker's turns."""
        return (yield from self._counted(self.sql.peek_pending, queues, most, tasks))

    def _counted(
        self, query: Query, queues: Sequence[object], most: int, tasks: Sequence[str]
    ) -> Steps[tuple[int, bool, int | None]]:
        reasons, names = _asked_of(tuple(tasks))
        ((found, parked, tick),) = yield query(
            queues=as_json(queues), most=most, reasons=reasons, tasks=names
        )
        return int_of(found), bool(parked), None if tick is None else int_of(tick)

    def next_due(
        self, queues: Sequence[str], now: int, *, whole: bool = True
    ) -> Steps[tuple[int | None, list[str]]]:
        """When the next scheduled job is due, in microseconds; None when nothing is scheduled. And
        which of these queues have a limit or lanes."""
        return (yield from self._due_and_gated(self.sql.next_due(queues=as_json(queues))))

    def _due_and_gated(self, asked: Statement) -> Steps[tuple[int | None, list[str]]]:
        ((run_at, gated),) = yield asked
        return None if run_at is None else int_of(run_at), _names(str(gated))

    def look_again(self, worker: int | None) -> int | None:
        """When the next turn of this worker is whole; None: the last one was."""
        return None

    # ---- lanes, and limits of queues

    def announce(self, news: Sequence[News], now: int) -> Steps[None]:
        """What happened to lanes, one of each: in their rows, or for whoever has their gate."""
        raise NotImplementedError

    def tell_filled(self, rows: Iterable[Row], now: int) -> Steps[None]:
        """Of these (queue, priority, lane), those that have a lane wait in it."""
        most: dict[tuple[str, str], int] = {}
        for queue, priority, lane in rows:
            if lane is not None:
                place = str(queue), str(lane)
                most[place] = max(most.get(place, int_of(priority)), int_of(priority))
        if most:
            news = [News(*place, priority=priority) for place, priority in sorted(most.items())]
            yield from self.announce(news, now)

    def hold_gates(self, queues: Sequence[str], now: int) -> Steps[tuple[list[str], bool]]:
        """The gates of these queues, without waiting: those that are ours now, and what was told of
        their lanes is known. True: more may have been told."""
        raise NotImplementedError

    def hold_gate(self, queue: str) -> Steps[None]:
        """The gate of a queue, whose limits are about to change."""
        return
        yield

    def read_gates(
        self, queues: Sequence[str], room: int, now: int
    ) -> Steps[tuple[int, list[Row]]]:
        """All that decides who begins next in these queues, whose gates are ours; and the time, no
        earlier than that of any holder before: `now` may be from before the gates were ours."""
        raise NotImplementedError

    def most_offered(self, room: int, lanes: int) -> int:
        """How many jobs of each of so many lanes `read_gates` gives at most."""
        return 2 * room // max(lanes, 1) + 2

    def take_chosen(
        self, worker: int, chosen: Sequence[Row], name: str | None, now: int
    ) -> Steps[list[Claimed]]:
        """Jobs that were chosen under their gates, as (state, queue, priority, id), to running; one
        that another transaction holds stays."""
        raise NotImplementedError

    def count_ended(self, jobs: Iterable[EndedJob], now: int, slot: int = OUTSIDE) -> Steps[None]:
        """Add ended jobs to this minute's roll-up."""
        sums: dict[tuple[str, str, int], list[int]] = {}
        for job in jobs:
            group = job.queue, job.task, job.outcome
            total = sums.get(group)
            if total is None:
                total = sums[group] = [0] * len(COUNTED)
            total[0] += job.ended
            total[1] += job.removed
            if job.duration is not None:
                total[RUN] += job.duration
                total[RUN + 1 + bisect_right(BUCKETS, job.duration)] += 1
                total[WAIT] += job.waited
                total[WAIT + 1 + bisect_right(BUCKETS, job.waited)] += 1
        if sums:
            minute = now // MINUTE
            rows: list[Row] = [(minute, *group, slot, *total) for group, total in sums.items()]
            yield self.sql.add_rollups.many(ROLLUP, rows)

    # ---- what follows the commit

    def wake(self, queues: Iterable[str]) -> Steps[None]:
        """Mark that there may be work in these queues: the runner wakes workers."""
        named = set(queues)
        if named:
            yield Mark(named)

    def tell_ended(self) -> Steps[None]:
        """Mark that chains ended: the runner wakes callers of `result()`."""
        yield ENDED


def earlier(time: int | None, other: int | None) -> int | None:
    """The earlier of two times, of which there may be one or none."""
    return other if time is None or (other is not None and other < time) else time


def chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many rows at a time as one statement may have."""
    if len(rows) <= CHUNK:
        return iter([rows] if rows else [])
    return (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))


@lru_cache(maxsize=16)
def _asked_of(tasks: tuple[str, ...]) -> tuple[str, str]:
    """What jobs of these tasks are parked for, and the tasks: a worker asks at every look."""
    return as_json(map(unknown_task, tasks)), as_json(tasks)


def as_json(values: Iterable[object]) -> str:
    """One parameter for many values."""
    return _in_ascii(list(values))


def as_json_by_id(values: Mapping[int, object]) -> str:
    """One parameter for many values, each by an id."""
    return _in_ascii(values)


def _in_ascii(value: object) -> str:
    """A caller's connection may speak another encoding."""
    try:
        quick = _quick(value)
    except UnicodeEncodeError:
        return _escaped(value)
    return quick.decode() if quick.isascii() else _escaped(value)


def int_of(value: object) -> int:
    """A column that is an integer by schema."""
    assert isinstance(value, int)
    return value
