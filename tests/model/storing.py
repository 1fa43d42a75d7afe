"""Rules of storing: the caller's transaction, new jobs, and what follows when a chain ends."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from tests.model.answers import OneOf
from tests.model.lining import LINED_UP, Lining, blockers_first
from tests.model.program import Answer, New, Refusal, Seen, Step
from tests.model.tables import Attempt, Chain, Edge, Job, Key, Tables, is_bad
from towline.errors import BlockerError, DuplicateKey, StillNeeded, TowlineError, WrongIsolation
from towline.model import ChainState, Live, Outcome, Policy

WAITING = (Live.PENDING, Live.SCHEDULED, Live.BLOCKED, Live.PARKED)
UNSTORED = "?"
"""Who is named though nothing of him was stored."""


class Storing(Lining):
    """The tables, and the verbs that fill them."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.tables = Tables()
        self.had_lanes = False
        """Whether a job ever was in one; no rollback takes that back."""
        self.outer: list[bytes] = []
        """The tables as they were at BEGIN and at each savepoint since."""
        self.level: str | None = None
        """That of the caller's transaction, if it goes on seeing the database as it was."""
        self.seen: Counter[str] = Counter()
        """How often each branch of a rule was taken; no rollback takes that back."""
        self._failed: list[tuple[Attempt, Job]] = []
        self._replacing: list[tuple[str, New, dict[str, str]]] = []

    @property
    def now(self) -> int:
        return self._clock()

    def take(self, step: Step) -> Answer:
        """Take a step: its answer, or the refusal that left everything as it was."""
        before = pickle.dumps(self.tables)
        self._failed.clear()
        self._replacing.clear()
        try:
            return getattr(self, step.verb)(*step.told)
        except TowlineError as error:
            self.tables = pickle.loads(before)
            return refusal(error)

    # ---- the caller's transaction (E1)

    def begin(self, level: str | None = None) -> None:
        self.level = level
        if level is not None:
            self.seen[f"began at {level.lower()}"] += 1
        self.savepoint()

    def savepoint(self) -> None:
        self.outer.append(pickle.dumps(self.tables))

    def rollback_to(self) -> None:
        """Back to the last savepoint, which stays."""
        self.tables = pickle.loads(self.outer[-1])

    def release(self) -> None:
        self.outer.pop()

    def commit(self) -> None:
        self.outer.clear()
        self.level = None

    def rollback(self) -> None:
        self.tables = pickle.loads(self.outer[0])
        self.commit()

    def refuse_old_snapshot(self) -> None:
        """Whoever ends, opens again or deletes chains must see who has just begun to wait for them;
        he who sees an old state of the database may not (B2, B3, R3)."""
        if self.level is not None:
            raise WrongIsolation

    # ---- enqueue

    def enqueue(self, news: Sequence[New]) -> list[tuple[Seen, bool]]:
        """Each new job begins a chain, unless its key is taken (D1); all or none is stored (E4)."""
        order = blockers_first(news)
        stored, taken = self._take_keys(order)
        batch = [self._placed(new, taken) for new in stored]
        self._insert(batch)
        return [
            (self.tables.job_seen(self.tables.tail(taken.get(new.name, new.name))),
             new.name not in taken)
            for new in news
        ]  # fmt: skip

    def _take_keys(self, order: Iterable[New]) -> tuple[list[New], dict[str, str]]:
        """The jobs to be stored, and for the others the chain that has their key."""
        stored: dict[str, New] = {}
        taken: dict[str, str] = {}
        for new in order:
            holder = self.tables.keys.get((new.task, new.key)) if new.key else None
            if holder is not None and new.on_conflict in LINED_UP:
                if new.on_conflict == "latest" and self._replaced(holder.chain, stored, new):
                    taken[new.name] = holder.chain
                    if holder.chain not in stored:  # and again, behind those that are put off
                        self._replacing.append((holder.chain, new, taken))
                else:
                    stored[new.name] = self._lined_up(holder.chain, stored, new)
                continue
            if holder is None or not self._in_scope(holder, new):
                stored[new.name] = new
                if new.key:
                    self.tables.keys[new.task, new.key] = Key(new.name, self.now)
                    self.seen["key taken from an ended chain" if holder else "key taken"] += 1
                continue
            if new.on_conflict == "raise":
                raise named(DuplicateKey, UNSTORED if holder.chain in stored else holder.chain)
            taken[new.name] = holder.chain
            self.seen[f"key held by {'its batch' if holder.chain in stored else 'a chain'}"] += 1
            if new.on_conflict == "replace" and holder.chain in stored:
                self._replaced(holder.chain, stored, new)
            elif new.on_conflict == "replace":  # it may wait for what is stored with it
                self._replacing.append((holder.chain, new, taken))
        return list(stored.values()), taken

    def _in_scope(self, holder: Key, new: New) -> bool:
        """D2: an open chain always has its key; an ended one for scope any, within the window."""
        if not holder.ended:
            return True
        if new.scope == "open":
            return False
        return new.window is None or holder.created_at > self.now - new.window

    def _replaced(self, chain: str, stored: dict[str, New], new: New) -> bool:
        """D3: new arguments and time, and what is said of queue, lane and expiry, for a job that
        has not started."""
        said = {name: getattr(new, name) for name in said_of(new)}
        if chain in stored:
            told = {"arguments": new.arguments, "at": new.at, "delay": new.delay, **said}
            stored[chain] = replace(stored[chain], **told)
            return True
        job = self.tables.jobs[chain]
        if "after" in said:
            self.refuse_old_snapshot()
        if job.state in (None, Live.RUNNING) or job.attempts:
            self.seen["not replaced"] += 1
            return False
        self.seen["replaced"] += 1
        job.arguments, job.run_at = new.arguments, self._due(new)
        if "expires" in said:
            job.expires_at = self._expiry(new)
        if "lane" in said:
            job.queue, job.lane, job.weight = new.queue or "default", new.lane, new.weight
            self.had_lanes = self.had_lanes or new.lane is not None
        if "policy" in said or "after" in said:
            self._wait_anew(job, new, said)
        elif job.state is not Live.BLOCKED:
            job.state = self._ready(job)
        return True

    def _replace_later(self) -> None:
        """What replaces stored jobs, once the others of the batch are stored."""
        while self._replacing:
            chain, new, taken = self._replacing.pop(0)
            after = tuple((taken.get(chain, chain), name) for chain, name in new.after)
            self._replaced(chain, {}, replace(new, after=after))

    def _wait_anew(self, job: Job, new: New, said: Collection[str]) -> None:
        """D3: other blockers in place of its own, but for those of its line; or another policy."""
        self.seen["waits anew"] += 1
        if "policy" in said:
            job.new = replace(job.new, policy=new.policy)
        if "after" in said:
            line = {edge.chain for edge in job.after if edge.in_line}
            named = [chain for chain, _ in new.after]
            if len({*named}) < len(named) or job.chain in named:
                raise BlockerError("a chain named twice, or its own")
            if not self.tables.chains.keys() >= {*named}:
                raise BlockerError("one that does not exist")
            edges = [Edge(c, n, name, c in line) for n, (c, name) in enumerate(new.after)]
            behind = [Edge(chain, -1, None, True) for chain in line.difference(named)]
            job.after, job.given = [*behind, *edges], len(behind) + len(edges)
        blocked = self.tables.unmet(job)
        failed = job.policy is Policy.FAIL and any(map(is_bad, self.tables.blockers_of(job)))
        job.state = Live.BLOCKED if blocked or failed else self._ready(job)
        if job.chain in self._upstream(job, reopened=False):
            raise BlockerError("a circle")
        if failed:
            self._end_chains([self._fail_waiting(job)])

    def _placed(self, new: New, taken: dict[str, str]) -> Job:
        """The first job of a chain."""
        return self._job(
            new, new.name, 0, new.queue or "default", new.priority or 0, new.key, new.trace,
            new.lane, self._edges(new, taken),
        )  # fmt: skip

    def _edges(self, new: New, taken: dict[str, str]) -> list[Edge]:
        """What it waits for, in declared order; the one before it in line may be none of these."""
        edges = [
            Edge(taken.get(chain, chain), place, name, chain == new.line)
            for place, (chain, name) in enumerate(new.after)
        ]
        if new.line is not None and not any(edge.in_line for edge in edges):
            edges.insert(0, Edge(new.line, -1, None, True))
        return edges

    def _family(self, before: Job, new: New) -> list[Job]:
        """F4: a continuation, behind the jobs that it brings along."""
        if not new.children:
            return [self._heir(before, new)]
        self.seen["fanned out"] += 1
        stored, taken = self._take_keys(blockers_first(new.children))
        after = tuple((taken.get(chain, chain), name) for chain, name in new.after)
        children = [self._placed(child, taken) for child in stored]
        return [*children, self._heir(before, replace(new, after=after))]

    def _heir(self, before: Job, new: New) -> Job:
        """C4: a continuation has its predecessor's queue with its lane, priority and trace unless
        told."""
        lane = before.lane if new.queue is None and new.lane is None else new.lane
        return self._job(
            new, before.chain, before.position + 1,
            before.queue if new.queue is None else new.queue,
            before.priority if new.priority is None else new.priority,
            before.key, new.trace or before.trace, lane, self._edges(new, {}),
        )  # fmt: skip

    def _job(
        self, new: New, chain: str, position: int, queue: str, priority: int, key: str | None,
        trace: str | None, lane: str | None, after: list[Edge],
    ) -> Job:  # fmt: skip
        if len({edge.chain for edge in after}) < len(after):
            raise BlockerError("a chain named twice")
        self.tables.ages += 1
        self.had_lanes = self.had_lanes or lane is not None
        return Job(
            new.name, chain, position, new, queue, priority, key, trace, new.arguments, self.now,
            self.tables.ages, self._due(new), len(after), after, lane=lane, weight=new.weight,
            expires_at=self._expiry(new),
        )  # fmt: skip

    def _expiry(self, new: New) -> int | None:
        return None if new.expires is None else self.now + new.expires

    def _insert(self, batch: Sequence[Job]) -> None:
        """Store jobs: each waits for its blockers (B1), or follows its policy (B6)."""
        tables = self.tables
        known = {*tables.chains, *(job.chain for job in batch)}
        for job in batch:
            if any(edge.chain == job.chain or edge.chain not in known for edge in job.after):
                raise BlockerError("its own chain, or one that does not exist")
        for job in batch:
            tables.jobs[job.name] = job
            if job.position == 0:
                tables.chains[job.name] = Chain(job.name, job.created_at, job.age)
        doomed: list[Job] = []
        for job in batch:
            if tables.unmet(job):
                job.state = Live.BLOCKED
            else:
                job.state = self._ready(job)
            if job.policy is Policy.FAIL and any(map(is_bad, tables.blockers_of(job))):
                job.state = Live.BLOCKED
                doomed.append(job)
            self.seen[f"stored {job.state.name.lower()}"] += 1
        for job in batch:
            if job.position and job.chain in self._upstream(job, reopened=False):
                raise BlockerError("a circle")
        if self.level is not None:
            self.seen["stored with an old snapshot"] += len(batch)
        if doomed:
            self.seen["failed at once behind a failed chain"] += 1
        self._end_chains([self._fail_waiting(job) for job in doomed])
        self._replace_later()

    def _upstream(self, job: Job, *, reopened: bool) -> set[str]:
        """The chains that a job waits for and all that these wait for in turn, by their last jobs:
        those that are blocked, or would be again once a chain is opened again."""
        found: set[str] = set()
        todo = [edge.chain for edge in job.after]
        while todo:
            chain = todo.pop()
            if chain in found:
                continue
            found.add(chain)
            tail = self.tables.tail(chain)
            if tail.state is Live.BLOCKED or (reopened and tail.state in WAITING):
                todo += [edge.chain for edge in tail.after]
        return found

    def _due(self, new: New) -> int:
        """S1: a past time means now."""
        if new.at is not None:
            return max(new.at, self.now)
        return self.now + max(new.delay or 0, 0)

    def _ready(self, job: Job) -> Live:
        """Where a job stands that waits for nothing but its time, and its turn."""
        job.parked = False
        return Live.SCHEDULED if job.run_at > self.now else job.waits

    # ---- what follows from an end

    def _end_chains(self, ended: list[tuple[str, ChainState]]) -> None:
        """Close chains, free their keys (D2), and settle what waits for them (B2, B6)."""
        tables = self.tables
        while ended:
            for name, state in ended:
                chain = tables.chains[name]
                chain.state, chain.ended_at = state, self.now
                for key in tables.keys.values():
                    if key.chain == name:
                        key.ended = True
            doomed: list[Job] = []
            over = {name for name, _ in ended}
            for job in tables.by_age():
                behind = [tables.chains[e.chain] for e in job.after if e.chain in over]
                if job.state is not Live.BLOCKED or not behind:
                    continue
                if job.policy is Policy.FAIL and any(map(is_bad, behind)):
                    doomed.append(job)
                elif not tables.unmet(job):
                    job.state = self._ready(job)
                    job.run_at = max(job.run_at, self.now)
                    self.seen[f"unblocked, {job.state.name.lower()}"] += 1
            ended = [self._fail_waiting(job) for job in doomed]
        self._name_blockers()

    def _fail_waiting(self, job: Job) -> tuple[str, ChainState]:
        """B6: a job whose blocker failed, under policy "fail"; its own chain fails with it."""
        attempt = self._end_waiting(job, Outcome.FAILED)
        self._failed.append((attempt, job))
        self.seen["failed by its blocker"] += 1
        return job.chain, ChainState.FAILED

    def _name_blockers(self) -> None:
        """The reason names a blocker; of several that failed in one step, any."""
        for attempt, job in self._failed:
            edges = [edge for edge in job.after if is_bad(self.tables.chains[edge.chain])]
            attempt.blocker = OneOf(edge.chain for edge in edges)
            attempt.error = OneOf(
                f"blocker chain {edge.chain}{f' ({edge.name})' if edge.name else ''} "
                f"ended {self.tables.chains[edge.chain].state}"
                for edge in edges
            )

    def _end_waiting(self, job: Job, outcome: Outcome) -> Attempt:
        """An end without a run: the next number, no start."""
        attempt = Attempt(job.attempt + 1, outcome, True, self.now, run_at=job.run_at)
        job.attempts.append(attempt)
        job.state = None
        return attempt


def said_of(new: New) -> list[str]:
    """What a call says, beside arguments and time, of the job that it replaces."""
    names = ["queue", "lane", "weight"] if new.lane is not None else []
    if new.expires is not None:
        names.append("expires")
    if new.on_conflict in ("replace", "latest") and new.policy is not Policy.FAIL:
        names.append("policy")
    return [*names, "after"] if new.on_conflict == "replace" and new.after else names


def named(kind: type[DuplicateKey] | type[StillNeeded], *names: str) -> TowlineError:
    """An error that tells names where an engine's tells ids."""
    error = kind.__new__(kind)
    error.args = names
    return error


def refusal(error: TowlineError) -> Refusal:
    """An error of the model; only those that name somebody have arguments that count."""
    tells = isinstance(error, DuplicateKey | StillNeeded)
    return Refusal(type(error).__name__, tuple(error.args) if tells else ())
