"""The store as PostgreSQL needs it: rows are locked, and what is common to nearly all jobs is one
statement.

There are many writers at a time. What waits takes rows in the order of their ids, a chain before
its jobs. A statement sees the database as it was when it began, so what is decided by a lock is
read by a later statement.

A round trip costs as much as the work of several jobs. So a plain job is stored by one statement,
claimed by one, and ended by two: hold its chain; if no job waits for it, write the end. They cannot
be one: a statement sees the database as it was when it began, and would miss an edge that was
committed while it took the chain's lock.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import groupby
from typing import Any

from ..model import OUTCOME_CODE
from ..naming import EVERY
from ..operation import Loss, Op, Query, Row, Steps
from ..records import Claimed, Enqueued, NewJob
from ..sql import Queries
from ..store import Store
from ..store.columns import (
    LANED,
    SHAPE,
    is_plain,
    is_simple,
    laned_of,
    new_record,
    row_of,
    shape_of,
)
from ..store.enqueue import IN_LANE, PENDING, SCHEDULED, portions
from ..store.finish import Finished, Verdict, plain_ends
from ..store.ground import (
    Clock,
    News,
    Reserved,
    as_json,
    earlier,
    host_clock,
    int_of,
)
from ..store.turn import Turn, in_claim_order
from . import finish_locks, gates, isolation
from .heads import MANY, AllHeads, Due
from .order import hold_in_order

NOTE = ("queue", "lane", "priority", "free", "until")


def ended_channel(channel: str) -> str:
    """The channel that says that chains ended, beside the channel of new work."""
    return f"{channel}_ended"


class PostgresStore(Store):
    """All operations, for many writers at a time: the database's clock and ids, the rows that are
    locked, and what is one statement here."""

    many_passed = MANY

    def __init__(self, sql: Queries, channel: str | None, clock: Clock | None = None) -> None:
        super().__init__(sql, clock or host_clock)
        self._own_clock = clock is None
        self._channel = channel
        self._heads = AllHeads()
        self._due = Due()

    def now(self) -> Steps[int]:
        """The database's clock decides; a test may bring its own."""
        if not self._own_clock:
            return self.clock()
        ((now,),) = yield self.sql.clock()
        return int_of(now)

    def _now_there(self) -> int | None:
        """For a statement that takes the time when it runs, later than its transaction began: what
        it sees has been committed by then, and has not ended after what begins now."""
        return None if self._own_clock else self.clock()

    def new_ids(self, number: int) -> Steps[Sequence[int]]:
        return [int_of(id) for (id,) in (yield self.sql.next_job_id(number=number))]

    # ---- locks

    def hold_chains(self, chains: Iterable[int]) -> Steps[None]:
        yield self.sql.hold_chains(chains=as_json(set(chains)))

    def hold_jobs(self, jobs: Iterable[int], *, behind: bool = False) -> Steps[bool]:
        listed = as_json(jobs)
        rows = yield self.sql.chains_of_jobs(jobs=listed)
        if behind:
            isolation.refuse_old_snapshot(rows)
        yield from self.hold_chains(int_of(id) for id, _ in rows)
        yield self.sql.hold_jobs(jobs=listed)
        return True

    def share_blockers(self, jobs: Iterable[int]) -> Steps[None]:
        rows = yield self.sql.blockers_of_jobs(jobs=as_json(jobs))
        if rows:
            yield self.sql.share_chains(chains=as_json(id for (id,) in rows))

    def hold_for_replacing(self, keys: Collection[Row], coming: Collection[int]) -> Steps[None]:
        yield from hold_in_order(self, keys, coming)

    def upstream(self, chains: Iterable[int], reopened: bool) -> Steps[set[int]]:
        """Look, share what was found, and look again, until there is nothing new: of several
        that would close a circle together the last one sees the rest. The caller has shared the
        chains that it begins with."""
        chains = list(chains)
        shared = set(chains)
        while True:
            found = yield from self.find_upstream(chains, reopened)
            if found <= shared:
                return found
            yield self.sql.share_chains(chains=as_json(found - shared))
            shared |= found

    def hold_workers(self, dead: set[int], gone: Collection[int], now: int) -> Steps[set[int]]:
        if not dead:
            return dead
        rows = yield self.sql.hold_workers(
            workers=as_json(sorted(dead)), gone=as_json(sorted(gone)), now=now
        )
        return {int_of(id) for (id,) in rows}

    def is_registered(self, worker: int, name: str) -> Steps[bool]:
        ((found,),) = yield self.sql.is_registered(id=worker, name=name)
        return bool(found)

    def hold_to_delete(self, chains: Sequence[int], jobs: Collection[int]) -> Steps[bool]:
        listed = as_json(chains)
        isolation.refuse_old_snapshot((yield self.sql.hold_doomed(chains=listed)))
        yield self.sql.hold_jobs(jobs=as_json(jobs))
        yield self.sql.hold_keys(chains=listed)
        rows = yield self.sql.chain_job_ids(chains=listed)
        return {int_of(id) for id, *_ in rows} <= set(jobs)

    def hold_old(self, rows: Sequence[Row]) -> Steps[Sequence[Row]]:
        """A chain that another transaction holds, or whose key it takes, is pruned another time."""
        held = yield self.sql.hold_doomed_now(chains=as_json(id for id, *_ in rows))
        isolation.refuse_old_snapshot(held)
        keys = yield self.sql.hold_keys_now(chains=as_json(id for id, *_ in held))
        busy = {chain for chain, ours in keys if not ours}
        return [row[:-1] for row in held if row[0] not in busy]

    def prune_position(self) -> Steps[int | None]:
        marks = yield self.sql.read_mark(name="prune")
        return int_of(marks[0][0]) if marks else None

    def hold_schedules(self, names: Collection[str], *, wait: bool = True) -> Steps[set[str]]:
        hold = self.sql.hold_schedules if wait else self.sql.hold_schedules_now
        return {str(name) for (name,) in (yield hold(names=as_json(sorted(names))))}

    def hold_key(self, key: str) -> Steps[None]:
        yield self.sql.hold_key(key=key)

    def share_now(self, chain: int) -> Steps[bool]:
        return bool((yield self.sql.share_chains_now(chains=as_json([chain]))))

    def hold_end_now(self, chain: int) -> Steps[bool]:
        return (yield from finish_locks.hold_end(self, chain))

    # ---- what follows the commit

    def wake(self, queues: Iterable[str]) -> Steps[None]:
        named = sorted(set(queues))
        yield from super().wake(named)
        if named and self._channel:
            yield self.sql.notify(channel=self._channel, queues=as_json(named))

    def tell_ended(self) -> Steps[None]:
        yield from super().tell_ended()
        if self._channel:
            yield self.sql.notify_ended(channel=ended_channel(self._channel))

    # ---- what is one statement

    def enqueue(self, jobs: Sequence[NewJob]) -> Op[Sequence[Enqueued]]:
        if not jobs or not all(map(is_simple, jobs)):
            return super().enqueue(jobs)
        plain = all(map(is_plain, jobs))  # who has no lane pays for none
        if plain and len(jobs) == 1:
            return Op("enqueue", self._enqueue_one, jobs[0], loss=Loss.IF_ALLOWED, single=True)
        parts = list(portions(jobs, lambda job: len(job.arguments)))
        single = len(parts) == 1
        store = self._enqueue_plain if plain else self._enqueue_laned
        return Op("enqueue", store, parts, loss=Loss.IF_ALLOWED, single=single)

    def _enqueue_one(self, job: NewJob) -> Steps[Sequence[Enqueued]]:
        now = self._now_there()
        shape = dict(zip(SHAPE, shape_of(job), strict=True), policy=int(job.policy))
        rows = yield self.sql.enqueue_one(now=now, arguments=job.arguments, **shape)
        ((stored_at, id),) = rows
        yield from self.wake((job.queue,))
        return (_enqueued(job, int_of(id), int_of(stored_at)),)

    def _enqueue_plain(self, parts: Sequence[Sequence[NewJob]]) -> Steps[Sequence[Enqueued]]:
        return (yield from self._enqueue_runs(parts, self.sql.enqueue_plain, SHAPE, shape_of))

    def _enqueue_laned(self, parts: Sequence[Sequence[NewJob]]) -> Steps[Sequence[Enqueued]]:
        return (yield from self._enqueue_runs(parts, self.sql.enqueue_laned, LANED, laned_of))

    def _enqueue_runs(
        self,
        parts: Sequence[Sequence[NewJob]],
        query: Query,
        columns: Sequence[str],
        alike_by: Callable[[NewJob], Any],
    ) -> Steps[Sequence[Enqueued]]:
        now = self._now_there()
        queues: set[str] = set()
        stored: list[Enqueued] = []
        for part in parts:
            runs: list[dict[str, Any]] = []
            for shape, alike in groupby(part, alike_by):
                arguments = [job.arguments for job in alike]
                runs.append(dict(zip(columns, shape, strict=True), arguments=arguments))
            rows = yield query(now=now, runs=as_json(runs))
            ((stored_at, ids),) = rows
            now = int_of(stored_at)
            for id, job in zip(json.loads(str(ids)), part, strict=True):
                stored.append(_enqueued(job, id, now))
            queues.update(run["queue"] for run in runs)
        yield from self.wake(queues)
        return stored

    def promote(self, limit: int, now: int, *, whole: bool = True) -> Steps[int]:
        since = None if whole else self._due.since(now)
        if since is None:
            rows = yield self.sql.promote_due(now=now, limit=limit)
        else:
            rows = yield self.sql.promote_due_above(now=now, limit=limit, since=since)
        promoted = len(rows) if rows[0][1] is not None else 0
        if since is None and promoted < limit:
            self._due.promoted(int_of(rows[0][0]) - promoted, now, self.many_passed)
        if promoted:
            yield from self.tell_filled([row[2:] for row in rows], now)
        return promoted

    def next_due(
        self, queues: Sequence[str], now: int, *, whole: bool = True
    ) -> Steps[tuple[int | None, list[str]]]:
        since = None if whole else self._due.since(now)
        if since is None:
            return (yield from super().next_due(queues, now))
        asked = self.sql.next_due_above(since=since, queues=as_json(queues))
        return (yield from self._due_and_gated(asked))

    def take_pending(
        self, worker: int, queues: Sequence[str], room: int, free: int, name: str | None, now: int,
        *, whole: bool = True,
    ) -> Steps[list[Claimed]]:  # fmt: skip
        heads = self._heads[worker]
        ranges = None if whole else heads.ranges(queues, now)
        query = self.sql.claim_pending if ranges is None else self.sql.claim_pending_above
        rows = yield query(
            now=self._now_there(), worker=worker, name=name, room=room, free=free,
            safe=self.crash_limit - 1,
            queues=as_json(_whole(queues) if ranges is None else ranges),
        )  # fmt: skip
        claimed = _claimed(rows)
        if ranges is None:
            passed = int_of(rows[0][0]) - len(claimed)
            heads.claimed(claimed, passed, now, self.many_passed)
        return claimed

    def claim_alone(
        self, worker: int, name: str, queues: Sequence[str], room: int, ahead: int
    ) -> Op[Turn] | None:
        if EVERY in queues or self._heads[worker].whole_at is not None:
            return None
        given = worker, name, queues, room, ahead
        return Op("turn", self._claim_alone, *given, loss=Loss.WITH_WORKERS, single=True)

    def _claim_alone(
        self, worker: int, name: str, queues: Sequence[str], room: int, ahead: int
    ) -> Steps[Turn]:
        rows = yield self.sql.claim_pending(
            now=self._now_there(), worker=worker, name=name,
            room=room + ahead, free=room, safe=self.crash_limit - 1, queues=as_json(_whole(queues)),
        )  # fmt: skip
        claimed = _claimed(rows)
        now, begun = claimed[0].claimed_at if claimed else 0, min(len(claimed), room)
        if claimed:
            passed = int_of(rows[0][0]) - len(claimed)
            self._heads[worker].claimed(claimed, passed, now, self.many_passed)
        return Turn(Finished(), claimed, {}, 0, None, now, begun=begun, alone=True)

    def count_pending(
        self, queues: Sequence[str], most: int, tasks: Sequence[str], worker: int | None, now: int
    ) -> Steps[tuple[int, bool, int | None]]:
        ranges = None if worker is None else self._heads[worker].ranges(queues, now)
        query = self.sql.peek_pending if ranges is None else self.sql.peek_pending_above
        from_where = _whole(queues) if ranges is None else ranges
        return (yield from self._counted(query, from_where, most, tasks))

    def look_again(self, worker: int | None) -> int | None:
        if worker is None:
            return None
        return earlier(self._heads[worker].whole_at, self._due.whole_at)

    # ---- lanes: their rows belong to who holds the gate of their queue, others leave notes

    def announce(self, news: Sequence[News], now: int) -> Steps[None]:
        yield self.sql.insert_notes.many(NOTE, [one[:5] for one in news])

    def hold_gates(self, queues: Sequence[str], now: int) -> Steps[tuple[list[str], bool]]:
        return (yield from gates.hold_now(self, queues, now))

    def hold_gate(self, queue: str) -> Steps[None]:
        yield from gates.hold(self, queue)

    def read_gates(
        self, queues: Sequence[str], room: int, now: int
    ) -> Steps[tuple[int, list[Row]]]:
        listed = as_json(queues)
        rows = yield self.sql.read_gates(queues=listed, room=room, now=self._now_there())
        return int_of(rows[0][0]) if rows else now, [row[1:] for row in rows]

    def take_chosen(
        self, worker: int, chosen: Sequence[Row], name: str | None, now: int
    ) -> Steps[list[Claimed]]:
        rows = yield self.sql.claim_chosen(
            now=now, worker=worker, name=name, safe=self.crash_limit - 1,
            jobs=_array([int_of(job) for *_, job in chosen]),
        )  # fmt: skip
        return in_claim_order(list(map(Claimed._make, rows)))

    # ---- ends

    def reserve(self, verdicts: Sequence[Verdict]) -> Steps[Reserved]:
        return (yield from finish_locks.reserve(self, verdicts))

    def settle(
        self, verdicts: Sequence[Verdict], worker: str | None, slot: int, now: int
    ) -> Steps[list[Verdict]]:
        plain = plain_ends(verdicts)
        if not plain:
            return []
        ends = list(plain.values())
        chains = _array(plain)
        rows = yield self.sql.hold_ending(chains=chains)
        isolation.refuse_old_snapshot(rows)
        ((taken, _),) = rows
        if taken is None:
            return []
        endings = [verdict.ending for verdict in ends]
        held = [ending.held for ending in endings]
        rows = yield self.sql.settle_jobs(
            now=now, worker=worker, slot=slot, taken=taken, chains=chains,
            jobs=_array([each.job_id for each in held]),
            attempts=_array([each.attempt for each in held]),
            holders=_array([each.worker for each in held]),
            outcomes=_array([OUTCOME_CODE[ending.outcome] for ending in endings]),
            started=_array([verdict.start for verdict in ends]),
            tasks=as_json([each.task for each in held]),
            outputs=as_json([ending.output for ending in endings]),
            errors=as_json([ending.error for ending in endings]),
            error_types=as_json([ending.error_type for ending in endings]),
        )  # fmt: skip
        gone = {int_of(id) for (id,) in rows}
        if gone:
            yield from self.tell_ended()
        return [verdict for verdict in ends if verdict.ending.held.job_id in gone]


def _whole(queues: Iterable[str]) -> list[dict[str, object]]:
    """Queues to claim from, each from its very beginning."""
    return [{"value": queue} for queue in queues]


def _claimed(rows: Sequence[Row]) -> list[Claimed]:
    """What a claim took, in order; one row without a job says that it took nothing."""
    return in_claim_order([Claimed._make(row[1:]) for row in rows if row[1] is not None])


def _enqueued(job: NewJob, id: int, now: int) -> Enqueued:
    run_at = job.due(now)
    state = SCHEDULED if run_at > now else PENDING if job.lane is None else IN_LANE
    row = row_of(job, id, id, 0, 0, now)
    return Enqueued(new_record(*row, state, 0, 0, 0, 0, run_at), True)


def _array(numbers: Iterable[int | None]) -> str:
    """Many numbers as one parameter: the server reads an array in a tenth of the time of JSON."""
    listed = ",".join(map(str, numbers))
    return "{" + listed.replace("None", "NULL") + "}"
