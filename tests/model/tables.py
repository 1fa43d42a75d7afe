"""What the model holds, and how reads show it: the rows of a store as plain values.

Nothing here knows a rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.model.answers import OneOf
from tests.model.flow_tables import Limit, Schedule, Starts
from tests.model.program import Held, New, Seen
from towline.model import (
    CHAIN_CODE,
    END_STATE,
    LIVE_STATE,
    OUTCOME_CODE,
    ChainState,
    Live,
    Outcome,
    Policy,
    State,
    unknown_task,
)
from towline.records import Claimed
from towline.store.columns import RARE


@dataclass
class Attempt:
    """One ended attempt."""

    number: int
    outcome: Outcome
    final: bool
    ended_at: int
    worker: str | None = None
    started_at: int | None = None
    output: str | None = None
    error: str | OneOf | None = None
    progress: float | None = None
    progress_text: str | None = None
    ended_by: str | None = None
    blocker: OneOf | None = None
    continued_by: str | None = None
    run_at: int | None = None
    error_type: str | None = None


class Edge(NamedTuple):
    """A chain that a job waits or waited for."""

    chain: str
    position: int
    name: str | None
    in_line: bool = False


@dataclass
class Job:
    """A job; `state` is None once it has ended, and `worker` stays the last one that had it."""

    name: str
    chain: str
    position: int
    new: New
    queue: str
    priority: int
    key: str | None
    trace: str | None
    arguments: str
    created_at: int
    age: int
    """Its place in the order of creation: what an id is to an engine."""
    run_at: int
    given: int
    """How many chains it was told to wait for."""
    after: list[Edge]
    """Those of them that still exist, in declared order."""
    state: Live | None = Live.PENDING
    attempt: int = 0
    used: int = 0
    lost: int = 0
    claimed_at: int | None = None
    started_at: int | None = None
    """None while it waits or was claimed ahead: then it has not begun, and is shown as pending."""
    worker: str | None = None
    progress: float | None = None
    progress_text: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    lane: str | None = None
    weight: int | None = None
    expires_at: int | None = None
    schedule: str | None = None
    tick: int | None = None
    parked: bool = False
    """Set aside since nobody knew its task; else one that is set aside waits in its lane."""

    @property
    def label(self) -> str | None:
        """Programs give each job its name; a schedule gives none."""
        return None if self.schedule else self.name

    @property
    def ordered(self) -> int | None:
        return 1 if self.new.line else None

    @property
    def waits(self) -> Live:
        """Where it stands once it could begin."""
        return Live.PENDING if self.lane is None else Live.PARKED

    @property
    def is_waiting(self) -> bool:
        """Whether a claim could find it."""
        return self.state is Live.PENDING or (self.state is Live.PARKED and not self.parked)

    @property
    def is_parked(self) -> bool:
        return self.state is Live.PARKED and self.parked

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def is_ahead(self) -> bool:
        """Whether a worker has it that has not begun with it."""
        return self.state is Live.RUNNING and self.started_at is None

    @property
    def shown(self) -> State:
        if self.is_ahead:
            return State.PENDING
        if self.state is not None:
            return LIVE_STATE[self.state]
        assert self.last is not None
        return END_STATE[self.last.outcome]

    @property
    def policy(self) -> Policy:
        return self.new.policy


@dataclass
class Chain:
    """Jobs continuing one another, named by the first."""

    name: str
    created_at: int
    age: int
    state: ChainState = ChainState.OPEN
    ended_at: int | None = None


@dataclass
class Key:
    """Who has a key; its time is that of its chain."""

    chain: str
    created_at: int
    ended: bool = False


@dataclass
class Worker:
    """A registered worker."""

    name: str
    started_at: int
    seen_at: int
    lease_until: int


@dataclass
class Tables:
    """Everything that a rollback takes back."""

    jobs: dict[str, Job] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)
    keys: dict[tuple[str, str], Key] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    limits: dict[tuple[str, str], Limit] = field(default_factory=dict)
    starts: dict[tuple[str, str], Starts] = field(default_factory=dict)
    """What began of late under a rate: of a queue (lane ""), and of a lane."""
    schedules: dict[str, Schedule] = field(default_factory=dict)
    ages: int = 0
    pruned_to: int = 0
    # What no read shows, but programs go on with: claims and jobs that are no more.
    claims: list[Held] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    # ---- finding

    def jobs_of(self, chain: str) -> list[Job]:
        return sorted(
            (job for job in self.jobs.values() if job.chain == chain), key=lambda job: job.position
        )

    def tail(self, chain: str) -> Job:
        return self.jobs_of(chain)[-1]

    def behind(self, chain: str) -> list[Job]:
        """Jobs that wait, or waited, for a chain, the oldest first."""
        return [job for job in self.by_age() if any(edge.chain == chain for edge in job.after)]

    def blockers_of(self, job: Job) -> list[Chain]:
        return [self.chains[edge.chain] for edge in job.after]

    def unmet(self, job: Job) -> int:
        """For how many chains a job has to wait; under policy "wait" also for those that failed."""
        return sum(
            chain.state is ChainState.OPEN or (is_bad(chain) and job.policy is Policy.WAIT)
            for chain in self.blockers_of(job)
        )

    def by_age(self) -> list[Job]:
        return sorted(self.jobs.values(), key=lambda job: job.age)

    def running_of(self, worker: str) -> list[Job]:
        return [job for job in self.by_age() if job.state is Live.RUNNING and job.worker == worker]

    def weight_of(self, queue: str, lane: str) -> int | None:
        """How much runs, of a queue (lane "") or of a lane; of each lane nothing is told."""
        if lane == "*":
            return None
        return sum(
            job.weight or 1
            for job in self.jobs.values()
            if job.state is Live.RUNNING and job.queue == queue and lane in ("", job.lane)
        )

    # ---- showing

    def job_seen(self, job: Job) -> Seen:
        """As `JobRecord`."""
        new, last = job.new, job.last or Attempt(0, Outcome.LOST, False, 0)
        tried = job.last is not None
        live = job.state is not None
        waits = self.unmet(job) if job.state is Live.BLOCKED else 0
        return {
            "id": job.name, "chain_id": job.chain, "position": job.position, "task": new.task,
            "label": job.label, "queue": job.queue, "priority": job.priority,
            "max_attempts": new.max_attempts, "timeout": new.timeout, "key": job.key,
            "blockers": job.given, "policy": int(job.policy), "arguments": job.arguments,
            "trace": job.trace, **rare(job), "created_at": job.created_at,
            "live_state": job.state, "attempt": job.attempt if live else None,
            "used": job.used if live else None, "lost": job.lost if live else None,
            "open_blockers": waits if live else None, "run_at": job.run_at if live else None,
            "started_at": job.started_at if live else None,
            "progress": job.progress if live else None,
            "progress_text": job.progress_text if live else None,
            "worker": self.worker_seen(job) if live else None,
            "held_by": job.worker if job.state is Live.RUNNING else None,
            "parked_for": unknown_task(new.task) if job.is_parked else None,
            "last_number": last.number if tried else None,
            "last_outcome": OUTCOME_CODE[last.outcome] if tried else None,
            "last_worker": last.worker, "last_started_at": last.started_at,
            "last_ended_at": last.ended_at if tried else None, "last_output": last.output,
            "last_error": last.error, "last_progress": last.progress,
            "last_progress_text": last.progress_text, "last_blocker": last.blocker,
            "continued_by": last.continued_by, "ended_by": last.ended_by,
            "last_run_at": last.run_at, "last_error_type": last.error_type,
        }  # fmt: skip

    def worker_seen(self, job: Job) -> str | None:
        """Who runs a job, as long as he is registered."""
        runs = job.state is Live.RUNNING and job.worker in self.workers
        return job.worker if runs else None

    def claim_seen(self, job: Job) -> Seen:
        """As `Claimed`."""
        new = job.new
        return {
            "job_id": job.name, "attempt": job.attempt, "queue": job.queue,
            "priority": job.priority, "chain_id": job.chain, "position": job.position,
            "task": new.task, "arguments": job.arguments, "used": job.used, "lost": job.lost,
            "max_attempts": new.max_attempts, "timeout": new.timeout, "key": job.key,
            "label": job.label, "blockers": job.given, "trace": job.trace,
            **{name: value for name, value in rare(job).items() if name in Claimed._fields},
            "created_at": job.created_at, "run_at": job.run_at, "claimed_at": job.claimed_at,
            "worker": job.worker,
        }  # fmt: skip

    def chain_seen(self, chain: Chain) -> Seen:
        """As `ChainRecord`."""
        first = self.jobs[chain.name]
        return {
            "id": chain.name, "task": first.new.task, "state_code": CHAIN_CODE[chain.state],
            "created_at": chain.created_at, "ended_at": chain.ended_at, "trace": first.trace,
            "label": first.label, "key": first.key,
        }  # fmt: skip

    def attempts_seen(self, job: Job) -> list[Seen]:
        """As `AttemptRecord`, the running one last."""
        shown: list[Seen] = [
            {
                "job_id": job.name, "number": a.number, "outcome_code": OUTCOME_CODE[a.outcome],
                "final": 1 if a.final else None, "worker": a.worker, "started_at": a.started_at,
                "ended_at": a.ended_at, "output": a.output, "error": a.error,
                "error_type": a.error_type, "progress": a.progress,
                "progress_text": a.progress_text, "ended_by": a.ended_by,
            }
            for a in job.attempts
        ]  # fmt: skip
        if job.state is Live.RUNNING and not job.is_ahead:
            shown.append({
                "job_id": job.name, "number": job.attempt, "outcome_code": 0, "final": None,
                "worker": self.worker_seen(job), "started_at": job.started_at, "ended_at": None,
                "output": None, "error": None, "error_type": None, "progress": job.progress,
                "progress_text": job.progress_text, "ended_by": None,
            })  # fmt: skip
        return shown

    def blockers_seen(self, job: Job) -> list[Seen]:
        """As `BlockerRecord`: what a job waits for, with the output or error of its last job."""
        shown: list[Seen] = []
        for chain, position, name, in_line in sorted(job.after, key=lambda edge: edge.position):
            tail = self.tail(chain)
            shown.append({
                "job_id": job.name, "position": position, "name": name, "chain_id": chain,
                "chain_state": CHAIN_CODE[self.chains[chain].state], "task": tail.new.task,
                "output": tail.last.output if tail.last else None,
                "error": tail.last.error if tail.last else None, "trace": None,
                "in_line": 1 if in_line else None,
            })  # fmt: skip
        return shown

    def dependents_seen(self, chain: str) -> list[Seen]:
        """As `DependentRecord`."""
        return [
            {
                "chain_id": chain, "job_id": job.name, "own_chain_id": job.chain,
                "queue": job.queue, "priority": job.priority, "policy": int(job.policy),
                "task": job.new.task, "key": job.key, "lane": job.lane,
                "name": next(edge.name for edge in job.after if edge.chain == chain),
            }
            for job in self.behind(chain)
        ]  # fmt: skip

    def next_due(self) -> int | None:
        """When the next scheduled job is due."""
        times = [job.run_at for job in self.jobs.values() if job.state is Live.SCHEDULED]
        return min(times, default=None)

    def counts(self) -> dict[tuple[str, str], int]:
        """Jobs by queue and state."""
        found: dict[tuple[str, str], int] = {}
        for job in self.jobs.values():
            strip = job.queue, str(job.shown)
            found[strip] = found.get(strip, 0) + 1
        return found

    def dump(self) -> Seen:
        """All that reads show, by what it is and by name."""
        return {
            "job": {job.name: self.job_seen(job) for job in self.by_age()},
            "attempts": {job.name: self.attempts_seen(job) for job in self.by_age()},
            "blockers": {job.name: self.blockers_seen(job) for job in self.by_age() if job.after},
            "chain": {c.name: self.chain_seen(c) for c in by_age(self.chains.values())},
            "worker": {
                w.name: {
                    "started_at": w.started_at, "seen_at": w.seen_at, "lease_until": w.lease_until,
                }
                for w in self.workers.values()
            },
            "counts": self.counts(),
            "paused": sorted(self.paused),
            "limits": {
                place: limit.seen(self.weight_of(*place))
                for place, limit in sorted(self.limits.items())
            },
            "schedules": {name: self.schedules[name].seen() for name in sorted(self.schedules)},
            "next due": self.next_due(),
        }  # fmt: skip


def rare(job: Job) -> Seen:
    """What few jobs have."""
    return {name: getattr(job, name) for name in RARE}


def is_bad(chain: Chain) -> bool:
    return chain.state in (ChainState.FAILED, ChainState.CANCELLED)


def by_age(chains: Iterable[Chain]) -> list[Chain]:
    return sorted(chains, key=lambda chain: chain.age)
