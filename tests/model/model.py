"""What the store promises, told once more without a database: plain rules over dictionaries.

A verb changes the tables or raises, and then has changed nothing. Rules are told in the words of
PROMISES.md, each once and with its number; how an engine does it is none of their business. Rooms:
`tables` what is held and shown, `storing` and `working`, and here what people do and read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.model.program import Keep, New, Seen, Where
from tests.model.storing import named
from tests.model.tables import Attempt, Chain, Job, Key, by_age, is_bad
from tests.model.working import Working
from towline.errors import DuplicateKey, InvalidState, NotFound, StillNeeded
from towline.model import CHAIN_END, ChainState, Live, Outcome, Policy, State
from towline.store.retention import PRUNE_WALK

T = TypeVar("T", Job, Chain)

OVER = (State.FAILED, State.CANCELLED)


class Model(Working):
    """What a store must answer and hold, after each verb of a program."""

    # ---- ending from outside (K1, K3)

    def cancel(self, name: str, reason: str | None, by: str | None) -> Seen:
        return self._end(name, Outcome.CANCELLED, error=reason, by=by)

    def fail(self, name: str, reason: str, by: str | None) -> Seen:
        return self._end(name, Outcome.FAILED, error=reason, by=by)

    def complete(self, name: str, output: str | None, next: New | None, by: str | None) -> Seen:
        outcome = Outcome.COMPLETED if next is None else Outcome.CONTINUED
        return self._end(name, outcome, output=output, next=next, by=by)

    def _end(
        self, name: str, outcome: Outcome, *, output: str | None = None, error: str | None = None,
        next: New | None = None, by: str | None = None,
    ) -> Seen:  # fmt: skip
        """End an open job; the attempt that runs is cancelled, or cut short by another end."""
        job = self._addressed(name)
        if job.state is None:
            raise InvalidState
        stands = "claimed ahead" if job.is_ahead else job.state.name.lower()
        self.seen[f"{outcome} from outside while {stands}"] += 1
        by = by or "outside"
        if job.state is Live.RUNNING and not job.is_ahead:
            attempt = Attempt(
                job.attempt, Outcome.CANCELLED, True, self.now, self.tables.worker_seen(job),
                job.started_at, error=error, progress=job.progress,
                progress_text=job.progress_text,
            )  # fmt: skip
            job.attempts.append(attempt)
            if outcome is not Outcome.CANCELLED:
                attempt.outcome, attempt.final = Outcome.LOST, False
                attempt.error = f"{outcome} from outside by {by} during this attempt"
                attempt = Attempt(job.attempt + 1, outcome, True, self.now)
                job.attempts.append(attempt)
            job.state = None
        else:
            attempt = self._end_waiting(job, outcome)
        attempt.output, attempt.error, attempt.ended_by = output, error, by
        if next is None:
            self._end_chains([(job.chain, CHAIN_END[outcome])])
        else:
            attempt.continued_by = next.name
            self._insert([self._heir(job, next)])
        return self.tables.job_seen(job)

    def _addressed(self, name: str) -> Job:
        """The first job of a chain that went on stands for the chain: its last job."""
        job = self._one(name)
        self.refuse_old_snapshot()
        if job.state is None and job.position == 0 and job.last and job.last.continued_by:
            return self.tables.tail(job.chain)
        return job

    def _one(self, name: str) -> Job:
        if name not in self.tables.jobs:
            raise NotFound
        return self.tables.jobs[name]

    # ---- waiting jobs

    def run_now(self, name: str) -> Seen:
        """S2: only a scheduled job; a pending one, claimed ahead or not, is as it should be."""
        job = self._one(name)
        if job.shown is State.PENDING:
            return self.tables.job_seen(job)
        if job.state is not Live.SCHEDULED:
            raise InvalidState
        job.state, job.run_at = Live.PENDING, self.now
        return self.tables.job_seen(job)

    def retry(self, name: str) -> Seen:
        """K2: pending again with fresh attempts, and with it what its failure had failed (B6)."""
        job = self._addressed(name)
        if job.state is not None or job.shown not in OVER:
            raise InvalidState
        if len(job.after) < job.given:
            self.seen["not retried: its blocker was deleted"] += 1
            raise InvalidState
        if job.policy is Policy.FAIL and any(map(is_bad, self.tables.blockers_of(job))):
            self.seen["not retried: its blocker failed"] += 1
            raise InvalidState
        self._revive(job)
        return self.tables.job_seen(job)

    def _revive(self, job: Job) -> None:
        """Open a job again, then what its failure had failed, and so on, the youngest first.

        A dependent that cannot come back stays as it ended. Who has not ended waits again, unless
        he runs just now.
        """
        todo = [job]
        while todo:
            one = todo.pop()
            try:
                self._reopen(one)
            except (DuplicateKey, InvalidState):
                if one is job:
                    raise
                continue
            for dependent in self.tables.behind(one.chain):
                if dependent.state is Live.RUNNING:
                    self.seen["runs on though its blocker is open again"] += 1
                elif dependent.state is not None:
                    dependent.state = Live.BLOCKED
                    self.seen["blocked again"] += 1
                elif self._was_failed_by_now_met(dependent):
                    todo.append(dependent)

    def _was_failed_by_now_met(self, job: Job) -> bool:
        """Whether a blocker had failed it, and none has failed any more."""
        return (
            job.last is not None
            and job.last.blocker is not None
            and len(job.after) == job.given
            and not any(map(is_bad, self.tables.blockers_of(job)))
        )

    def _reopen(self, job: Job) -> None:
        """Open an ended job and its chain, if its key can be had back and nothing goes round."""
        tables = self.tables
        waits = tables.unmet(job)
        if waits and job.chain in self._upstream(job, reopened=True):
            self.seen["not reopened: a circle"] += 1
            raise InvalidState
        chain, task = tables.chains[job.chain], tables.jobs[job.chain].new.task
        if job.key is not None:
            holder = tables.keys.get((task, job.key))
            if holder is not None and not holder.ended:
                self.seen["not reopened: its key is taken"] += 1
                raise named(DuplicateKey, holder.chain)
            tables.keys[task, job.key] = Key(job.chain, chain.created_at)
        last = job.last
        assert last is not None
        last.final = False
        job.state, job.run_at = Live.PENDING, self.now
        if waits:
            job.state, job.run_at = Live.BLOCKED, last.run_at or self.now
        job.attempt, job.used, job.lost = last.number, 0, 0
        job.claimed_at = job.started_at = job.progress = job.progress_text = None
        chain.state, chain.ended_at = ChainState.OPEN, None
        self.seen[f"reopened {job.state.name.lower()}"] += 1

    # ---- queues (L8)

    def pause(self, queue: str) -> None:
        self.tables.paused.add(queue)

    def resume(self, queue: str) -> None:
        self.tables.paused.discard(queue)

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
            and where.label in (None, chain.name)
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
        and where.label in (None, job.name)
        and in_time(job, where)
    )


def in_time(one: Job | Chain, where: Where) -> bool:
    """Since is inclusive, until is not."""
    return (where.since is None or one.created_at >= where.since) and (
        where.until is None or one.created_at < where.until
    )
