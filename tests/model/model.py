"""What the store promises, told once more without a database: plain rules over dictionaries.

A verb changes the tables or raises, and then has changed nothing. Rules are told in the words of
PROMISES.md, each once and with its number; how an engine does it is none of their business. Rooms:
`tables` what is held and shown, `storing`, `limiting`, `working`, `controlling`, `scheduling`, and
here what people delete and read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.model.controlling import OVER
from tests.model.program import Keep, Where
from tests.model.scheduling import Scheduling
from tests.model.storing import named
from tests.model.tables import Chain, Job, by_age
from towline.errors import DuplicateKey, InvalidState, NotFound, StillNeeded
from towline.model import ChainState, Live, State
from towline.store.retention import PRUNE_WALK

T = TypeVar("T", Job, Chain)


class Model(Scheduling):
    """What a store must answer and hold, after each verb of a program."""

    # ---- deleting

    def delete(self, name: str, cascade: bool) -> list[str]:
        """R3: a chain with all that belongs to it; with cascade also what it waited for. Refused
        while an open job of another chain waits for it."""
        tables = self.tables
        if name not in tables.chains:
            raise NotFound
        self.refuse_old_snapshot()
        chains: set[str] = set()
        todo = [name]
        while todo:
            chain = todo.pop()
            if chain not in chains:
                chains.add(chain)
                jobs = tables.jobs_of(chain) if cascade else []
                todo += [edge.chain for job in jobs for edge in job.after]
        waiting = [
            job.name
            for job in tables.by_age()
            if job.state is not None
            and job.chain not in chains
            and any(edge.chain in chains for edge in job.after)
        ]
        if waiting:
            raise named(StillNeeded, *sorted(waiting))
        self.seen[f"deleted {'several chains' if len(chains) > 1 else 'a chain'}"] += 1
        for job in tables.by_age():
            if job.chain in chains and (before := self._before(job)) is not None:
                self._close_up(job, before)
        self._remove(chains)
        return sorted(chains)

    def _remove(self, chains: set[str]) -> None:
        tables = self.tables
        for job in list(tables.jobs.values()):
            job.after = [edge for edge in job.after if edge.chain not in chains]
            if job.chain in chains:
                if job.state is Live.RUNNING:
                    self.seen["deleted while it ran"] += 1
                del tables.jobs[job.name]
                tables.deleted.append(job.name)
        for name in chains:
            del tables.chains[name]
        tables.keys = {k: key for k, key in tables.keys.items() if key.chain not in chains}

    def prune(self, keep: Keep, limit: int) -> tuple[int, bool]:
        """R4: old ended chains, from the oldest on to the first that is too young, a bounded number
        at a time; never what somebody waits for or, once retried, would need again."""
        tables = self.tables
        kept = [age for state in ChainState if (age := keep.of(state)) is not None]
        if not kept:
            return 0, True
        old: set[str] = set()
        done = False
        for _ in range(PRUNE_WALK):  # past those that stay
            room = limit - len(old)
            walk = [c for c in by_age(tables.chains.values()) if c.age > tables.pruned_to][:room]
            done = len(walk) < room
            for chain in walk:
                if chain.created_at > self.now - min(kept):
                    done = True
                    break
                tables.pruned_to = chain.age
                age = keep.of(chain.state)
                if age is not None and (chain.ended_at or 0) <= self.now - age:
                    old.add(chain.name)
            if done or len(old) == limit:
                break
        if old:
            self.refuse_old_snapshot()
        while needed := {name for name in old if self._is_needed(name, old)}:
            self.seen["not pruned: still needed"] += 1
            old -= needed
        self._remove(old)
        if old:
            self.seen["pruned"] += 1
        if done:
            tables.pruned_to = 0
        return len(old), done

    def _is_needed(self, chain: str, besides: set[str]) -> bool:
        """By a chain that is open, or could be opened again."""
        return any(
            self.tables.chains[job.chain].state is not ChainState.COMPLETED
            for job in self.tables.behind(chain)
            if job.chain not in besides
        )

    # ---- many at once (K4)

    def bulk(self, action: str, where: Where, preview: bool, limit: int, by: str | None) -> int:
        """Cancel or retry what fits, a page at a time; what cannot be is passed over."""
        number, cursor = 0, None
        while True:
            page = self._past([j for j in self.tables.by_age() if fits(j, where)], cursor, True)
            for job in [(one, one.shown) for one in page[:limit]]:
                number += self._bulk_one(action, *job, preview, by)
            if len(page) < limit:
                return number
            cursor = page[limit - 1].age

    def _bulk_one(self, action: str, job: Job, was: State, preview: bool, by: str | None) -> bool:
        if not (was.open if action == "cancel" else was in OVER):
            return False
        if preview:
            return True
        try:
            if action == "cancel":
                self.cancel(job.name, None, by)
            else:
                self.retry(job.name)
        except (DuplicateKey, InvalidState):
            self.seen[f"{action} in bulk passed over"] += 1
            return False
        self.seen[f"{action} in bulk"] += 1
        return True

    # ---- reading (R1)

    def jobs(self, where: Where, limit: int, newest: bool) -> list[list[str]]:
        """Pages of the names of jobs that fit."""
        found = [job for job in self.tables.by_age() if fits(job, where)]
        return self._pages(found, limit, newest)

    def chains(self, where: Where, limit: int, newest: bool) -> list[list[str]]:
        tables = self.tables
        found = [
            chain
            for chain in by_age(tables.chains.values())
            if where.state in (None, chain.state)
            and where.task in (None, tables.jobs[chain.name].new.task)
            and where.key in (None, tables.jobs[chain.name].key)
            and where.label in (None, tables.jobs[chain.name].label)
            and in_time(chain, where)
        ]
        return self._pages(found, limit, newest)

    def _pages(self, found: Sequence[T], limit: int, newest: bool) -> list[list[str]]:
        """One page after the other; after a full one comes another, perhaps empty."""
        pages: list[list[str]] = []
        cursor: int | None = None
        while True:
            page = self._past(found, cursor, newest)[:limit]
            pages.append([one.name for one in page])
            if len(page) < limit:
                return pages
            cursor = page[-1].age

    def _past(self, found: Sequence[T], cursor: int | None, newest: bool) -> list[T]:
        ordered = sorted(found, key=lambda one: one.age, reverse=newest)
        if cursor is None:
            return ordered
        return [one for one in ordered if (one.age < cursor if newest else one.age > cursor)]

    def look(self, what: str, name: str) -> object:
        """One job or chain, or what belongs to it; NotFound when it is gone (E12)."""
        job, tables = self._one(name), self.tables
        looks: dict[str, Callable[[], object]] = {
            "job": lambda: tables.job_seen(job),
            "chain": lambda: (
                tables.chain_seen(tables.chains[job.chain]),
                tables.job_seen(tables.tail(job.chain)),
            ),
            "ended": lambda: (
                None
                if tables.chains[job.chain].state is ChainState.OPEN
                else tables.job_seen(tables.tail(job.chain))
            ),
            "attempts": lambda: tables.attempts_seen(job),
            "dependents": lambda: tables.dependents_seen(job.chain),
        }
        return looks[what]()


def fits(job: Job, where: Where) -> bool:
    outcome = job.last.outcome if job.last else None
    return (
        where.state in (None, job.shown)
        and where.outcome in (None, outcome)
        and where.task in (None, job.new.task)
        and where.queue in (None, job.queue)
        and where.chain in (None, job.chain)
        and where.key in (None, job.key)
        and where.label in (None, job.label)
        and in_time(job, where)
    )


def in_time(one: Job | Chain, where: Where) -> bool:
    """Since is inclusive, until is not."""
    return (where.since is None or one.created_at >= where.since) and (
        where.until is None or one.created_at < where.until
    )
