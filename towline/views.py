"""What commands print with --json: plain values with stable keys, times in ISO 8601, UTC."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from .app import Towline
from .app.handles import AtLeast, Attempt, Chain, Job, Progress
from .model import BlockerRecord, DependentRecord, State, WorkerRecord
from .operation import compose
from .times import to_datetime

Data = dict[str, Any]

DEEPEST = 100  # lists and objects in one another that are shown as such


def now_of(app: Towline) -> datetime:
    """The time by the clock that decides."""
    return to_datetime(app.runner.run(compose("now", app.runner.store.now, reads=True)))


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
        return None if job.queue in self._served else f"no worker works on queue {job.queue}"

    @cached_property
    def _paused(self) -> set[str]:
        return set(self._app.paused())

    @cached_property
    def _served(self) -> set[str]:
        return {queue for worker in self._app.workers() for queue in worker.queues}


def job_data(job: Job[Any], reasons: Reasons) -> Data:
    """A job as lists show it: without its arguments and its output."""
    return {
        "id": job.id,
        "chain_id": job.chain_id,
        "position": job.position,
        "task": job.task,
        "label": job.label,
        "queue": job.queue,
        "priority": job.priority,
        "key": job.key,
        "state": str(job.state),
        "reason": reasons.of(job),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "outcome": None if job.outcome is None else str(job.outcome),
        "open_blockers": job.open_blockers,
        "continued_by": job.continued_by,
        "created_at": time_text(job.created_at),
        "run_at": time_text(job.run_at),
        "started_at": time_text(job.started_at),
        "ended_at": time_text(job.ended_at),
        "worker": job.worker,
        "ended_by": job.ended_by,
        "progress": progress_data(job.progress),
        "error": job.error,
    }


def full_job_data(app: Towline, job: Job[Any]) -> Data:
    """Everything about one job."""
    task = app.registry.get(job.task)
    return {
        **job_data(job, Reasons(app)),
        "description": None if task is None else task.__doc__,
        "arguments": stored(job.arguments),
        "output": stored(output_of(job)),
        "attempts": [attempt_data(attempt) for attempt in app.attempts(job.id)],
        "blockers": [blocker_data(blocker) for blocker in app.blockers(job.id)],
    }


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


def progress_data(progress: Progress | None) -> Data | None:
    return None if progress is None else {"fraction": progress.fraction, "text": progress.text}


def attempt_data(attempt: Attempt) -> Data:
    return {
        "number": attempt.number,
        "outcome": None if attempt.outcome is None else str(attempt.outcome),
        "worker": attempt.worker,
        "started_at": time_text(attempt.started_at),
        "ended_at": time_text(attempt.ended_at),
        "ended_by": attempt.ended_by,
        "progress": progress_data(attempt.progress),
        "error": attempt.error,
        "error_type": attempt.error_type,
    }


def blocker_data(blocker: BlockerRecord) -> Data:
    return {
        "chain_id": blocker.chain_id,
        "name": blocker.name,
        "state": str(blocker.state),
        "task": blocker.task,
        "error": blocker.error,
    }


def dependent_data(dependent: DependentRecord) -> Data:
    return {
        "job_id": dependent.job_id,
        "chain_id": dependent.own_chain_id,
        "task": dependent.task,
        "name": dependent.name,
    }


def chain_data(chain: Chain) -> Data:
    return {
        "id": chain.id,
        "task": chain.task,
        "state": str(chain.state),
        "label": chain.label,
        "key": chain.key,
        "created_at": time_text(chain.created_at),
        "ended_at": time_text(chain.ended_at),
        "output": None if chain.last is None else stored(output_of(chain.last)),
        "error": chain.error,
    }


def worker_data(worker: WorkerRecord, running: int, now: datetime) -> Data:
    return {
        "id": worker.id,
        "name": worker.name,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "queues": json.loads(worker.queues),
        "concurrency": worker.concurrency,
        "running": running,
        "started_at": time_text(to_datetime(worker.started_at)),
        "seen_at": time_text(to_datetime(worker.seen_at)),
        "lease_until": time_text(to_datetime(worker.lease_until)),
        "expired": to_datetime(worker.lease_until) < now,
    }


def workers_of(app: Towline, now: datetime) -> list[Data]:
    return [
        worker_data(worker, len(app.runner.run(app.runner.store.running(worker.id))), now)
        for worker in app.runner.run(app.runner.store.workers())
    ]


def counts_data(counts: dict[str, int]) -> Data:
    """A number for every state; those in "at_least" are more than were counted."""
    data: Data = {str(state): int(counts.get(state, 0)) for state in State}
    data["at_least"] = [str(s) for s in State if isinstance(counts.get(s), AtLeast)]
    return data
