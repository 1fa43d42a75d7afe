"""The store as SQLite needs it: what is done most of all takes few steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, groupby
from typing import Any

import msgspec

from ..model import CHAIN_CODE, CHAIN_END, OUTCOME_CODE, Live, Outcome
from ..operation import Loss, Mark, Op, Row, Statement, Steps
from ..records import Claimed, Enqueued, NewJob
from ..store import Store
from ..store.cascade import end_chains, free_behind
from ..store.columns import (
    BEHIND_RARE,
    FIRST_RARE,
    LANED,
    NOTHING_RARE,
    is_simple,
    laned_of,
    new_record,
    row_of,
)
from ..store.edges import Placed
from ..store.enqueue import Stand
from ..store.finish import Verdict, ended_job, plain_ends
from ..store.ground import (
    News,
    as_json,
    as_json_by_id,
    chunks,
    int_of,
)
from ..store.lane import filled
from ..store.turn import in_claim_order

PENDING, PARKED = int(Live.PENDING), int(Live.PARKED)
OPENED = 100  # lanes whose time has come that one look opens
RUN = 8  # rows that are quicker as one value than one by one
LONG = 10_000  # characters of an output or error that are better not copied once more
Group = tuple[str, int, int | None, Outcome]  # queue, priority, worker, how it ended


class SqliteStore(Store):
    """All operations, for one writer at a time on one host."""

    # ---- one plain job

    def enqueue(self, jobs: Sequence[NewJob]) -> Op[Sequence[Enqueued]]:
        if len(jobs) == 1:
            job = jobs[0]
            at_once = job.delay is None and job.at is None and job.expires is None
            if at_once and job.key is None and not job.blockers:
                return Op("enqueue", self._enqueue_one, job, loss=Loss.IF_ALLOWED)
        return super().enqueue(jobs)

    def _enqueue_one(self, job: NewJob) -> Steps[Sequence[Enqueued]]:
        """One job that needs no other row and is due at once; as `store.enqueue.insert` does it."""
        now = self.clock()
        ((next_id,),) = yield self.sql.next_job_id()
        id = int_of(next_id)
        row = row_of(job, id, id, 0, 0, now)
        state = PENDING
        yield Statement(self.sql.insert_chains, (id, job.task, now, job.trace))
        if row[FIRST_RARE:BEHIND_RARE] == NOTHING_RARE:
            plain = row[:FIRST_RARE] + row[BEHIND_RARE:]
            yield Statement(self.sql.insert_plain_job, plain)
            yield Statement(self.sql.insert_plain_live, (job.queue, job.priority, id, now))
        else:
            yield Statement(self.sql.insert_jobs, row)
            lane = job.lane
            state = PENDING if lane is None else PARKED
            place = (state, job.queue, job.priority, id, 0, 0, now, lane, job.weight)
            yield Statement(self.sql.insert_live, place)
            if lane is not None:
                yield from self.announce([filled(job.queue, lane, job.priority)], now)
        yield Mark({job.queue})
        return (Enqueued(new_record(*row, state, 0, 0, 0, 0, now), True),)

    # ---- many at once

    def insert_runs(
        self, placed: Sequence[Placed], stands: Sequence[Stand], now: int
    ) -> Steps[Sequence[tuple[Placed, Stand]]]:
        """Jobs of one shape: what they share is bound once, not for each row."""
        if len(placed) < RUN:
            return list(zip(placed, stands, strict=True))
        others: list[tuple[Placed, Stand]] = []
        runs: dict[tuple[Stand, tuple[Any, ...]], list[Placed]] = {}
        for place, stand in zip(placed, stands, strict=True):
            if place.position or not is_simple(place.job):
                others.append((place, stand))
            else:
                runs.setdefault((stand, laned_of(place.job)), []).append(place)
        for (stand, shape), run in runs.items():
            if len(run) < RUN:
                others += [(place, stand) for place in run]
            else:
                yield from self._insert_run(run, stand, dict(zip(LANED, shape, strict=True)), now)
        return others

    def _insert_run(
        self, run: Sequence[Placed], stand: Stand, said: dict[str, Any], now: int
    ) -> Steps[None]:
        state, _, run_at = stand
        del said["at"], said["delay"]  # that is where they stand
        said["policy"] = int(said["policy"])
        arguments = as_json_by_id({place.id: place.job.arguments for place in run})
        yield self.sql.insert_run(arguments=arguments, now=now, **said)
        ids = as_json([place.id for place in run])
        task, trace = said["task"], said["trace"]
        yield self.sql.insert_chains_of_run(ids=ids, task=task, trace=trace, now=now)
        place = {name: said[name] for name in ("queue", "priority", "lane", "weight")}
        yield self.sql.insert_live_of_run(ids=ids, state=state, run_at=run_at, **place)

    def insert_edges(self, edges: Sequence[Row]) -> Steps[None]:
        """A job that waits for many chains names all of them as one value."""
        if len(edges) < RUN:
            yield from super().insert_edges(edges)
            return
        others: list[Row] = []
        for shared, some in groupby(zip(edges, count()), _shape_of_edges):
            alike = [edge for edge, _ in some]
            if len(alike) < RUN:
                others += alike
                continue
            named = dict(zip(("job_id", "name", "trace", "in_line"), shared, strict=False))
            for chunk in chunks(alike):
                listed = as_json([edge[0] for edge in chunk])
                yield self.sql.insert_edges_of_job(chains=listed, position=chunk[0][2], **named)
        yield from super().insert_edges(others)

    # ---- the many of a turn

    def take_pending(
        self, worker: int, queues: Sequence[str], room: int, free: int, name: str | None, now: int,
        *, whole: bool = True,
    ) -> Steps[list[Claimed]]:  # fmt: skip
        ((found,),) = yield self.sql.find_pending(
            now=now, worker=worker, name=name, queues=as_json(queues), room=room
        )
        claimed = yield from self._with_arguments(in_claim_order(_claimed(str(found))))
        strips: dict[tuple[str, int], list[int]] = {}
        free_up_to: dict[tuple[str, int], int] = {}
        for place, job in enumerate(claimed):
            strip = job.queue, job.priority
            strips.setdefault(strip, []).append(job.job_id)
            if place < free:
                free_up_to[strip] = job.job_id
        for strip, jobs in strips.items():
            queue, priority = strip
            yield self.sql.claim_jobs(
                now=now, worker=worker, safe=self.crash_limit - 1, queue=queue, priority=priority,
                free=free_up_to.get(strip, 0), jobs=as_json(jobs), last=jobs[-1],
            )  # fmt: skip
        return claimed

    def _with_arguments(self, claimed: list[Claimed]) -> Steps[list[Claimed]]:
        """With those that are long, which a claim leaves out."""
        long = [job.job_id for job in claimed if not job.arguments]
        if not long:
            return claimed
        rows = yield self.sql.long_arguments(jobs=as_json(long))
        texts = {id: str(text) for id, text in rows}
        return [
            job if job.arguments else job._replace(arguments=texts[job.job_id]) for job in claimed
        ]

    # ---- lanes: the writer is the gate of every queue

    def announce(self, news: Sequence[News], now: int) -> Steps[None]:
        full: list[Row] = [
            (n.queue, n.lane, n.priority, now, n.queue) for n in news if n.priority is not None
        ]
        if full:
            yield self.sql.fill_lanes.many(("queue", "lane", "priority", "now", "queue"), full)
        free: list[Row] = [(n.queue, n.lane) for n in news if n.free]
        if free:
            yield self.sql.free_lanes.many(("queue", "lane"), free)
        rest: list[Row] = [
            (n.queue, n.lane, n.rank, now, n.until) for n in news if n.until is not None
        ]
        if rest:
            yield self.sql.rest_lanes.many(("queue", "lane", "priority", "now", "until"), rest)

    def hold_gates(self, queues: Sequence[str], now: int) -> Steps[tuple[list[str], bool]]:
        yield self.sql.open_lanes(queues=as_json(queues), now=now, limit=OPENED)
        return list(queues), False

    def read_gates(
        self, queues: Sequence[str], room: int, now: int
    ) -> Steps[tuple[int, list[Row]]]:
        found: list[Row] = []
        for queue in queues:
            listed = as_json([queue])
            ((lanes,),) = yield self.sql.count_open(queues=listed, limit=room)
            each = self.most_offered(room, int_of(lanes))
            found += yield self.sql.read_gates(queues=listed, room=room, each=each)
        return now, found

    def take_chosen(
        self, worker: int, chosen: Sequence[Row], name: str | None, now: int
    ) -> Steps[list[Claimed]]:
        ((found,),) = yield self.sql.find_chosen(
            rows=as_json(chosen), now=now, worker=worker, name=name
        )
        claimed = yield from self._with_arguments(in_claim_order(_claimed(str(found))))
        if not claimed:
            return []
        found_in = {job: state for state, _, _, job in chosen}
        strips: dict[Row, list[int]] = {}
        for each in claimed:
            strip = found_in[each.job_id], each.queue, each.priority
            strips.setdefault(strip, []).append(each.job_id)
        for (state, queue, priority), jobs in strips.items():
            yield self.sql.claim_chosen(
                now=now, worker=worker, safe=self.crash_limit - 1, state=state, queue=queue,
                priority=priority, jobs=as_json(jobs),
            )  # fmt: skip
        return claimed

    # ---- ends

    def settle(
        self, verdicts: Sequence[Verdict], worker: str | None, slot: int, now: int
    ) -> Steps[list[Verdict]]:
        """Jobs that are over, without a key or a successor; what is behind them is freed after."""
        plain = plain_ends(verdicts, LONG)
        if not plain:
            return []
        awaited = {int_of(id) for (id,) in (yield self.sql.find_awaited(chains=as_json(plain)))}
        groups: dict[Group, list[Verdict]] = {}
        for verdict in plain.values():
            held = verdict.ending.held
            group = held.queue, held.priority, held.worker, verdict.ending.outcome
            groups.setdefault(group, []).append(verdict)
        accepted: list[Verdict] = []
        for group, alike in groups.items():
            accepted += yield from self._settle_alike(alike, group, worker, now)
        if accepted:
            yield from self.tell_ended()
            yield from self.count_ended([ended_job(v, now) for v in accepted], now, slot)
            if awaited:
                yield from self._free_behind(accepted, awaited, now)
        return accepted

    def _free_behind(self, accepted: list[Verdict], awaited: set[int], now: int) -> Steps[None]:
        states = {
            verdict.ending.held.chain_id: CHAIN_END[verdict.ending.outcome]
            for verdict in accepted
            if verdict.ending.held.chain_id in awaited
        }
        if states:
            yield from end_chains(self, (yield from free_behind(self, states, now)), now)

    def _settle_alike(
        self,
        verdicts: list[Verdict],
        group: Group,
        worker: str | None,
        now: int,
    ) -> Steps[list[Verdict]]:
        """Write ends that have all this in common; those that passed the fence."""
        queue, priority, held_by, outcome = group
        rows = _rows(verdicts)
        yield self.sql.settle_attempts(
            rows=rows, outcome=OUTCOME_CODE[outcome], worker=worker, now=now, queue=queue,
            priority=priority, held_by=held_by,
        )  # fmt: skip
        ((written,),) = yield self.sql.changed()
        if int_of(written) < len(verdicts):
            ((found,),) = yield self.sql.find_settled(
                rows=rows, queue=queue, priority=priority, held_by=held_by
            )
            passed = _ids(str(found))
            verdicts = [v for v in verdicts if v.ending.held.job_id in passed]
            if not verdicts:
                return []
        held = [verdict.ending.held for verdict in verdicts]
        jobs = as_json([job.job_id for job in held])
        yield self.sql.settle_live(queue=queue, priority=priority, jobs=jobs)
        state = CHAIN_CODE[CHAIN_END[outcome]]
        chains = as_json([job.chain_id for job in held])
        yield self.sql.settle_chains(state=state, now=now, chains=chains)
        return verdicts


def _shape_of_edges(numbered: tuple[Row, int]) -> Row:
    """What edges of one job have in common that differ in their chains and positions only."""
    (_, job_id, position, name, trace, in_line), number = numbered
    return job_id, name, trace, in_line, int_of(position) - number


_claimed = msgspec.json.Decoder(list[Claimed]).decode
_ids = msgspec.json.Decoder(set[int]).decode


def _rows(verdicts: Sequence[Verdict]) -> str:
    return as_json([
        (*(e := v.ending).held[:2], v.start, e.output, e.error, e.error_type) for v in verdicts
    ])  # fmt: skip
