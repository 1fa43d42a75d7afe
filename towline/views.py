"""What machines are shown of jobs, chains, attempts, workers and counts: plain values with stable
keys, times in ISO 8601, UTC. For commands with --json, and whatever else answers programs."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from .app.answers import AtLeast, Progress, WorkerInfo
from .app.filters import StatsWhere, stats_filter
from .app.handles import Chain, Job
from .app.rollups import EndedJobs, run_time
from .model import END_STATE, DependentRecord, State
from .secret import HIDDEN, hidden
from .task.retry import Backoff
from .times import MICRO, micros, to_datetime

if TYPE_CHECKING:
    from .app import Towline
    from .task import Task

Data = dict[str, Any]

# What is shown of each, in this order; a name is one of its attributes.
JOB = (
    "id", "chain_id", "position", "task", "label", "queue", "priority", "key", "state", "reason",
    "attempt", "max_attempts", "outcome", "open_blockers", "continued_by", "created_at", "run_at",
    "started_at", "ended_at", "worker", "ended_by", "progress", "error",
)  # fmt: skip
CHAIN = ("id", "task", "state", "label", "key", "created_at", "ended_at")
ATTEMPT = (
    "number", "outcome", "worker", "started_at", "ended_at", "ended_by", "progress", "error",
    "error_type",
)  # fmt: skip
BLOCKER = ("chain_id", "name", "state", "task", "error")
DEPENDENT = ("job_id", "chain_id", "task", "name")
WORKER = (
    "id", "name", "host", "pid", "version", "queues", "concurrency", "running", "started_at",
    "seen_at", "lease_until",
)  # fmt: skip

DEEPEST = 100  # lists and objects in one another that are shown as such


def time_text(when: datetime | None) -> str | None:
    if when is None:
        return None
    return when.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class Reasons:
    """Why pending jobs do not start. What the queues are is read once, when the first one asks."""

    def __init__(self, app: Towline) -> None:
        self._app = app

    def of(self, job: Job[Any]) -> str | None:
        if job.reason is not None or job.state is not State.PENDING:
            return job.reason
        if job.queue in self._paused:
            return f"queue {job.queue} is paused"
        return None if job.queue in self._served else f"no worker serves queue {job.queue}"

    @cached_property
    def _paused(self) -> set[str]:
        return set(self._app.paused())

    @cached_property
    def _served(self) -> set[str]:
        return {queue for worker in self._app.workers() for queue in worker.queues}


def jobs_data(app: Towline, jobs: Iterable[Job[Any]]) -> list[Data]:
    """Jobs as lists show them: without their arguments and their output."""
    reasons = Reasons(app)
    return [{**_data(job, JOB), "reason": reasons.of(job)} for job in jobs]


def full_job_data(app: Towline, job: Job[Any]) -> Data:
    """Everything about one job."""
    task = app.registry.get(job.task)
    return {
        **jobs_data(app, [job])[0],
        "why": app.why(job.id),
        "description": None if task is None else inspect.getdoc(task.function),
        "arguments": shown_arguments(app, job),
        "output": shown_output(app, job),
        "attempts": attempts_data(app, job.id),
        "blockers": blockers_data(app, job.id),
    }


def attempts_data(app: Towline, id: int) -> list[Data]:
    return [_data(attempt, ATTEMPT) for attempt in app.attempts(id)]


def graph_data(app: Towline, id: int) -> Data:
    """A chain with all that it waits for and needs it. Chains of the same task and state that wait
    for the same and are needed by the same are one node, with their number."""
    found = app.runner.run(app.runner.store.graph(id))
    before: dict[int, set[int]] = {chain.id: set() for chain in found.chains}
    behind: dict[int, set[int]] = {chain.id: set() for chain in found.chains}
    for edge in found.edges:
        before[edge.waiting].add(edge.blocker)
        behind[edge.blocker].add(edge.waiting)
    groups: dict[object, list[int]] = {}
    for chain in found.chains:
        own = chain.id if chain.id == id else None
        key = own, chain.task, chain.state, *map(frozenset, (before[chain.id], behind[chain.id]))
        groups.setdefault(key, []).append(chain.id)
    place = {member: members[0] for members in groups.values() for member in members}
    chains = {chain.id: chain for chain in found.chains}
    return {
        "nodes": [
            {
                "id": members[0],
                "task": chains[members[0]].task,
                "state": str(chains[members[0]].state),
                "chains": len(members),
            }
            for members in groups.values()
        ],
        "edges": [
            list(edge)
            for edge in dict.fromkeys((place[e.blocker], place[e.waiting]) for e in found.edges)
        ],
        "chains": len(found.chains),
        "complete": found.complete,
    }


def paused_data(app: Towline) -> dict[str, Data]:
    """Queues that stand still, by name: since when, and by whose word."""
    return {
        queue.name: {
            "paused_at": time_text(to_datetime(queue.paused_at)),
            "paused_by": queue.paused_by,
        }
        for queue in app.runner.run(app.runner.store.paused())
    }


def blockers_data(app: Towline, id: int) -> list[Data]:
    return [_data(blocker, BLOCKER) for blocker in app.blockers(id)]


def shown_arguments(app: Towline, job: Job[Any]) -> Any:
    """The arguments, with their secrets hidden."""
    task = app.registry.get(job.task)
    names = task.signature.secrets.arguments if task is not None else ()
    return hidden(stored(job.arguments), names, app.settings.secret_names)


def shown_output(app: Towline, job: Job[Any]) -> Any:
    """The output, with its secrets hidden; None before it is there."""
    task = app.registry.get(job.task)
    value = stored(output_of(job))
    if task is None:
        return hidden(value, (), app.settings.secret_names)
    secrets = task.signature.secrets
    if secrets.whole_output and value is not None:
        return HIDDEN
    return hidden(value, secrets.output, app.settings.secret_names)


def arguments_text(app: Towline, job: Job[Any]) -> str:
    """The arguments as they are stored, with their secrets hidden."""
    return _text(job.arguments, shown_arguments(app, job))


def output_text(app: Towline, job: Job[Any]) -> str | None:
    """The output as it is stored, with its secrets hidden; None before it is there."""
    text = output_of(job)
    return None if text is None else _text(text, shown_output(app, job))


def _text(text: str, shown: Any) -> str:
    return text if shown == stored(text) else json.dumps(shown, ensure_ascii=False)


def output_of(job: Job[Any]) -> str | None:
    """The output as it is stored, whatever its task makes of it."""
    return job.record.last_output if job.state is State.COMPLETED else None


def stored(text: str | None) -> Any:
    """A stored value. Hands other than ours may have written it: what is no JSON, nested too
    deeply or a number that JSON does not have is given as its text."""
    if text is None:
        return None
    try:
        value = json.loads(text, parse_constant=str, parse_float=_number)
    except (ValueError, RecursionError):
        return text
    return value if _depth(value) <= DEEPEST else text


def _number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _depth(value: Any) -> int:
    """How deep values lie in one another, up to one more than is shown."""
    depth, layer = 0, [value]
    while layer and depth <= DEEPEST:
        depth += 1
        inner = [
            v.values() if isinstance(v, dict) else v for v in layer if isinstance(v, dict | list)
        ]
        layer = [v for values in inner for v in values]
    return depth


def dependent_data(dependent: DependentRecord) -> Data:
    return {**_data(dependent, DEPENDENT), "chain_id": dependent.own_chain_id}


def task_data(task: Task[..., Any]) -> Data:
    """A task as it was declared."""
    return {
        "name": task.name,
        "signature": task.signature.text,
        "queue": task.queue,
        "priority": task.priority,
        "max_attempts": task.max_attempts,
        "timeout": None if task.timeout is None else micros(task.timeout) / MICRO,
        "backoff": _backoff_data(task.backoff),
        "run_in": task.run_in,
        "slots": task.slots,
        "description": inspect.getdoc(task.function),
    }


def _backoff_data(backoff: Backoff) -> Data:
    return {
        "first": backoff.first,
        "factor": backoff.factor,
        "cap": backoff.cap,
        "jitter": backoff.jitter,
        "never": [error.__qualname__ for error in backoff.never],
        "per": {
            error.__qualname__: None if own is None else _backoff_data(own)
            for error, own in backoff.per.items()
        },
    }


def chain_data(app: Towline, chain: Chain) -> Data:
    output = None if chain.last is None else shown_output(app, chain.last)
    return {**_data(chain, CHAIN), "output": output, "error": chain.error}


def worker_data(worker: WorkerInfo, now: datetime) -> Data:
    data = {**_data(worker, WORKER), "running": len(worker.running)}
    return {**data, "expired": worker.lease_until < now}


def _data(thing: object, names: Sequence[str]) -> Data:
    return {name: _plain(getattr(thing, name)) for name in names}


def _plain(value: Any) -> Any:
    """A value of a handle as JSON has it."""
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, Progress):
        return {"fraction": value.fraction, "text": value.text}
    return list(value) if isinstance(value, tuple) else value


def ended_data(ended: Sequence[EndedJobs]) -> Data:
    """All of these jobs together: how many ended, how many of them badly, how long they ran."""
    failed = [jobs.count for jobs in ended if END_STATE[jobs.outcome] is State.FAILED]
    return {
        "ended": sum(jobs.count for jobs in ended),
        "failed": sum(failed),
        "p50": run_time(ended, 0.5),
        "p95": run_time(ended, 0.95),
        "p99": run_time(ended, 0.99),
    }


def totals(counts: dict[str, dict[str, int]]) -> dict[str, int]:
    """All queues together, by state; "at least" when one of them is."""
    return {str(state): _sum([of.get(state, 0) for of in counts.values()]) for state in State}


def _sum(numbers: list[int]) -> int:
    total = sum(int(number) for number in numbers)
    return AtLeast(total) if any(isinstance(number, AtLeast) for number in numbers) else total


def failures_data(app: Towline, **where: Unpack[StatsWhere]) -> Data:
    """What failed for good, by task and kind of error, the most frequent first; with "complete"
    false there are older ones that were not looked at, so each count is "at least"."""
    found = app.runner.run(app.runner.store.failures(stats_filter(where)))
    failures = [
        {
            **group._asdict(),
            "first_at": time_text(to_datetime(group.first_at)),
            "last_at": time_text(to_datetime(group.last_at)),
        }
        for group in found.groups
    ]
    return {"failures": failures, "complete": found.complete}


def counts_data(counts: dict[str, int]) -> Data:
    """A number for every state; those in "at_least" are more than were counted."""
    data: Data = {str(state): int(counts.get(state, 0)) for state in State}
    data["at_least"] = [str(s) for s in State if isinstance(counts.get(s), AtLeast)]
    return data
