"""Deleting: one chain and what belongs to it, or old ended chains a bounded batch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import NotFound, StillNeeded
from ..operation import Steps, operation
from ..sql import Row
from .base import as_json, int_of
from .cascade import DELETE_LIVE, MINUTE, EndedJob
from .listing import Listing

PRUNE_BATCH = 500
HOUR = 60  # in minutes, as the roll-ups count
KEEP_MINUTES = 2 * 24 * HOUR
KEEP_HOURS = 90 * 24 * HOUR
KEEP_DAYS = 400 * 24 * HOUR
DAY = 24 * HOUR
AGE = 2**40  # longer than any history: all that is older becomes one row


@dataclass(slots=True, frozen=True)
class Ages:
    """How long ended chains stay, in microseconds; None keeps them for ever."""

    completed: int | None
    failed: int | None
    cancelled: int | None

    def of(self, code: int) -> int | None:
        return (None, self.completed, self.failed, self.cancelled)[code]

    def over(self, chain: Row, now: int) -> bool:
        """Whether a chain (id, state, created_at, ended_at) has ended and stayed long enough."""
        _, state, _, ended_at = chain
        age = self.of(int_of(state))
        return age is not None and int_of(ended_at) <= now - age


@dataclass(slots=True)
class Pruned:
    """What one batch of retention did; `done` when it reached the young end."""

    chains: int
    done: bool


class Retention(Listing):
    """Operations that delete."""

    @operation()
    def delete(self, chain_ids: Sequence[int], cascade: bool = False) -> Steps[list[int]]:
        """Delete chains with their jobs, attempts and edges; return the chains that went.

        With cascade also every chain they waited for, followed from continuations too. Refused,
        naming the dependents, while an open job outside the set waits for one of them.
        """
        known = yield from self.chain_records(chain_ids)
        missing = set(chain_ids) - {chain.id for chain in known}
        if missing:
            raise NotFound(f"there is no chain {min(missing)}")
        while True:
            chains, jobs = yield from self._belonging(chain_ids, cascade)
            if (yield from self.hold_to_delete(sorted(chains), jobs)):
                break
        waiting = yield self.sql.find_waiting_outside(chains=as_json(sorted(chains)))
        if waiting:
            dependents = tuple(dict.fromkeys(int_of(job) for _, job in waiting))
            raise StillNeeded(
                f"chain {int_of(waiting[0][0])} cannot be deleted: "
                f"{'job' if len(dependents) == 1 else 'jobs'} "
                f"{', '.join(map(str, dependents[:10]))}{' …' if len(dependents) > 10 else ''} "
                "wait for it; delete or cancel them first",
                dependents,
            )
        yield from self._remove(sorted(chains))
        return sorted(chains)

    @operation(durable=False)
    def prune(self, ages: Ages, limit: int = PRUNE_BATCH) -> Steps[Pruned]:
        """Delete ended chains older than their age, one bounded batch past a remembered position.

        Never deletes what a job still waits for, or would need again when it is retried.
        """
        now = yield from self.now()
        position = yield from self.prune_position()
        if position is None:
            return Pruned(0, True)
        kept = [age for age in (ages.completed, ages.failed, ages.cancelled) if age is not None]
        if not kept:
            yield from self._fold(now)
            return Pruned(0, True)
        youngest = now - min(kept)
        rows = yield self.sql.walk_old_chains(position=position, limit=limit)
        done = len(rows) < limit
        for id, _, created_at, _ in rows:
            if int_of(created_at) > youngest:
                done = True
                break
            position = int_of(id)
        ripe = [row for row in rows if int_of(row[0]) <= position and ages.over(row, now)]
        if ripe:
            ripe = [row for row in (yield from self.hold_old(ripe)) if ages.over(row, now)]
        old = [int_of(id) for id, *_ in ripe]
        while old:
            # What stays needs its blockers, so leaving one out may make another needed.
            needed = yield from self._needed(old)
            if not needed:
                yield from self._remove(old)
                break
            old = [id for id in old if id not in needed]
        yield self.sql.set_mark(name="prune", value=0 if done else position)
        if done:
            yield from self._fold(now)
        return Pruned(len(old), done)

    def _belonging(
        self, chain_ids: Sequence[int], cascade: bool
    ) -> Steps[tuple[set[int], set[int]]]:
        """These chains and their jobs; with cascade also every chain they wait for, and its."""
        chains = set(chain_ids)
        jobs: set[int] = set()
        fresh = set(chains)
        while fresh:
            rows = yield self.sql.chain_job_ids(chains=as_json(sorted(fresh)))
            found = {int_of(id) for id, *_ in rows}
            jobs |= found
            fresh = set()
            if cascade:
                rows = yield self.sql.blockers_of_jobs(jobs=as_json(sorted(found)))
                fresh = {int_of(id) for (id,) in rows} - chains
                chains |= fresh
        return chains, jobs

    def _needed(self, chains: Sequence[int]) -> Steps[set[int]]:
        rows = yield self.sql.find_needed(chains=as_json(chains))
        return {int_of(id) for (id,) in rows}

    def _remove(self, chains: Sequence[int]) -> Steps[None]:
        if not chains:
            return
        now = yield from self.now()
        listed = as_json(chains)
        rows = yield self.sql.chain_job_ids(chains=listed)
        ids = [int_of(id) for id, *_ in rows]
        keys = [
            (chain, key, chain) for id, chain, _, key in rows if key is not None and id == chain
        ]
        jobs = as_json(ids)
        yield from self.count_ended(
            [
                EndedJob(str(queue), str(task), int_of(outcome), None, 0, int_of(number))
                for queue, task, outcome, number in (yield self.sql.count_ended_of(jobs=jobs))
            ],
            now,
        )
        yield from self._close_live(ids)
        if keys:
            yield self.sql.delete_keys.many(("chain_id", "key", "chain_id"), keys)
        yield self.sql.keep_job_id()
        yield self.sql.delete_attempts.many(("job_id",), [(id,) for id in ids])
        yield self.sql.delete_edges.many(("chain_id",), [(chain,) for chain in chains])
        yield self.sql.delete_edges_of_jobs.many(("job_id",), [(id,) for id in ids])
        yield self.sql.delete_jobs.many(("id",), [(id,) for id in ids])
        yield self.sql.delete_chains.many(("id",), [(chain,) for chain in chains])

    def _close_live(self, ids: Sequence[int]) -> Steps[None]:
        """Take open jobs of deleted chains out of `live`, by their whole key."""
        rows = yield self.sql.open_keys(jobs=as_json(ids))
        if rows:
            yield self.sql.delete_live.many(DELETE_LIVE, rows)

    def _fold(self, now: int) -> Steps[None]:
        """Make old roll-ups coarser, so that counting does not grow with history."""
        minute = now // MINUTE
        for keep, unit in ((KEEP_MINUTES, HOUR), (KEEP_HOURS, DAY), (KEEP_DAYS, AGE)):
            before = (minute - keep) // DAY * DAY
            yield self.sql.fold_rollups(before=before, unit=unit)
            yield self.sql.drop_folded_rollups(before=before, unit=unit)
