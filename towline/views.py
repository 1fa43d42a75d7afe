"""What machines are shown of jobs, chains, attempts, workers and counts: plain values with stable
keys, times in ISO 8601, UTC. For commands with --json, and whatever else answers programs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

from .app.answers import AtLeast, AttemptInfo, AuditLine, Progress, WorkerInfo, living
from .app.filters import StatsWhere, stats_filter
from .app.group import Group
from .app.handles import Chain, Job
from .app.limits import Lane, Limit
from .app.rollups import By, EndedJobs, Times, ended_jobs, minutes_of, together
from .app.schedules import Schedule
from .app.shown import Mask, chain_error, shown_arguments, shown_output, shown_template
from .errors import NotFound
from .model import END_STATE, State
from .naming import EVERY
from .records import BlockerRecord, DependentRecord
from .secret import HIDDEN
from .task.retry import Backoff
from .times import MICRO, micros, to_datetime, to_datetime_or_none

if TYPE_CHECKING:
    from .app import Towline
    from .task import Task

Data = dict[str, Any]

# What is shown of each, in this order; a name is one of its attributes.
JOB = (
    "id", "chain_id", "position", "task", "label", "queue", "priority", "lane", "weight", "key",
    "schedule", "tick", "state", "reason", "attempt", "max_attempts", "outcome", "open_blockers",
    "continued_by", "created_at", "run_at", "expires_at", "started_at", "ended_at", "worker",
    "ended_by", "progress", "error",
)  # fmt: skip
CHAIN = ("id", "task", "state", "label", "key", "created_at", "ended_at")
ATTEMPT = (
    "number", "outcome", "worker", "started_at", "ended_at", "ended_by", "progress", "error",
    "error_type",
)  # fmt: skip
BLOCKER = ("chain_id", "name", "state", "task", "error")
GROUP = ("id", "task", "queue", "state", "total", "ended", "created_at")
DEPENDENT = ("job_id", "chain_id", "task", "name")
WORKER = (
    "id", "name", "host", "pid", "version", "queues", "concurrency", "running", "started_at",
    "seen_at", "lease_until",
)  # fmt: skip

SCHEDULE = (
    "name", "task", "queue", "declared", "edited", "paused", "paused_at", "paused_by", "next_at",
    "last_tick", "last_job", "ticks", "skipped", "missed", "reason",
)  # fmt: skip
LIMIT = (
    "queue", "lane", "concurrency", "rate", "per", "running", "began", "opens_at", "declared",
    "edited", "changed_at", "changed_by",
)  # fmt: skip
LANE = (
    "queue", "lane", "state", "waiting", "running", "served_at", "opens_at", "concurrency", "rate",
    "per", "began",
)  # fmt: skip

AUDIT = ("at", "by", "action", "job_id", "queue", "number", "chosen")
DONE = {
    "retry": "retried", "cancel": "cancelled", "run_now": "told to run now", "fail": "failed",
    "complete": "completed", "delete": "deleted", "pause": "paused", "resume": "resumed",
    "reveal": "revealed", "set_schedule": "set", "pause_schedule": "paused",
    "resume_schedule": "resumed", "run_schedule": "stored", "delete_schedule": "deleted",
    "enqueue": "stored", "change": "changed", "rerun": "run again", "limit": "limited",
    "prune": "pruned",
}  # fmt: skip

MOST_BLOCKERS = 1000


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
        if EVERY in self._paused:
            return "every queue is paused"
        served = any(worker.serves(job.queue) for worker in self._workers)
        return None if served else f"no worker serves queue {job.queue}"

    @cached_property
    def _paused(self) -> set[str]:
        return set(self._app.paused())

    @cached_property
    def _workers(self) -> list[WorkerInfo]:
        return living(self._app.workers(), self._app.now())


def jobs_data(app: Towline, jobs: Iterable[Job[Any]]) -> list[Data]:
    """Jobs as lists show them: without their arguments and their output."""
    reasons = Reasons(app)
    return [{**_told(job, JOB, Mask(job)), "reason": reasons.of(job)} for job in jobs]


def full_job_data(app: Towline, job: Job[Any]) -> Data:
    """Everything about one job."""
    task = app.registry.get(job.task)
    return {
        **jobs_data(app, [job])[0],
        "why": app.why(job.id),
        "description": None if task is None else inspect.getdoc(task.function),
        "arguments": shown_arguments(app, job),
        "output": shown_output(app, job),
        "attempts": attempts_data(app, job),
        "blockers": blockers_data(app, job.id),
        "audit": audit_data(app.audit(job=job.id)),
    }


def schedule_data(app: Towline, schedule: Schedule) -> Data:
    """A schedule with its next ticks, in its own time zone."""
    record = schedule.record
    return {
        **_data(schedule, SCHEDULE),
        "arguments": shown_template(app, schedule),
        "cron": record.cron,
        "every": None if record.every is None else record.every / MICRO,
        "tz": record.tz,
        "start": time_text(to_datetime_or_none(record.start_at)),
        "end": time_text(to_datetime_or_none(record.end_at)),
        "jitter": record.jitter / MICRO,
        "catch_up": record.catch_up,
        "overlap": record.overlap,
        "explained": schedule.explain(),
        "upcoming": [tick.isoformat() for tick in schedule.upcoming()],
    }


def attempts_data(app: Towline, job: Job[Any]) -> list[Data]:
    mask = Mask(job)
    return [_told(attempt, ATTEMPT, mask) for attempt in app.attempts(job.id)]


def audit_data(lines: Iterable[AuditLine]) -> list[Data]:
    """What people did; `done` is the action as it is told: "retried"."""
    return [{**_data(line, AUDIT), "done": DONE.get(line.action, line.action)} for line in lines]


def attempts_of(app: Towline, jobs: Sequence[Job[Any]]) -> dict[int, list[Data]]:
    """The same of many jobs, read at once."""
    found = app.runner.run(app.runner.store.attempts_of([job.id for job in jobs]))
    masks = {job.id: Mask(job) for job in jobs}
    return {
        id: [_told(AttemptInfo.of(record), ATTEMPT, mask) for record in found.get(id, ())]
        for id, mask in masks.items()
    }


def paused_data(app: Towline) -> dict[str, Data]:
    """Queues that stand still, by name, or "*" for all: since when, and by whose word."""
    return {
        queue.name: {
            "paused_at": time_text(to_datetime(queue.paused_at)),
            "paused_by": queue.paused_by,
        }
        for queue in app.runner.run(app.runner.store.paused())
    }


def limits_data(limits: Iterable[Limit]) -> list[Data]:
    return [_data(limit, LIMIT) for limit in limits]


def lanes_data(lanes: Iterable[Lane]) -> list[Data]:
    return [_data(lane, LANE) for lane in lanes]


def blockers_data(app: Towline, id: int, most: int = MOST_BLOCKERS) -> list[Data]:
    """What a job waits for, the first of them; a group has its own page."""
    found = app.runner.run(app.runner.store.members(id, 0, most))
    return _members(app, found, BLOCKER)


def _members(app: Towline, found: Sequence[BlockerRecord], names: Sequence[str]) -> list[Data]:
    """Chains that somebody waits for, the errors of their last jobs with the secrets of those."""
    failed = {each.chain_id for each in found if each.error}
    firsts = app.jobs(ids=failed, limit=len(failed)) if failed else ()
    lasts = {job.id: _last(app, job) for job in firsts}
    shown = []
    for each in found:
        data, job = _data(each, names), lasts.get(each.chain_id)
        if data["error"]:  # of one that was deleted meanwhile it is not known what to hide
            data["error"] = HIDDEN if job is None else Mask(job)(data["error"])
        shown.append(data)
    return shown


def _last(app: Towline, job: Job[Any]) -> Job[Any] | None:
    """Of the chain that begins with this one."""
    try:
        return app.chain(job.id).last if job.continued_by else job
    except NotFound:
        return None


def group_data(app: Towline, group: Group[Any], most: int) -> Data:
    """How far a group is, and so many of its members, those that failed first."""
    run, store = app.runner.run, app.runner.store
    failed = group.failed()
    bad = run(store.bad_members(group.id, most)) if failed else []
    named = {member.position for member in bad}
    others = [m for m in run(store.members(group.id, 0, most)) if m.position not in named]
    members = [*bad, *others[: most - len(bad)]]
    return {
        **_data(group, GROUP),
        "failed": failed,
        "why": app.why(group.id),
        "members": _members(app, members, ("position", *BLOCKER)),
    }


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
        "cron": None if task.cron is None else task.cron.explain(),
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
    last = chain.last
    output = None if last is None else shown_output(app, last)
    return {**_data(chain, CHAIN), "output": output, "error": chain_error(chain)}


def worker_data(worker: WorkerInfo, now: datetime) -> Data:
    data = {**_data(worker, WORKER), "running": worker.busy}
    return {**data, "expired": worker.lease_until < now}


def _data(thing: object, names: Sequence[str]) -> Data:
    return {name: _plain(getattr(thing, name)) for name in names}


def _told(thing: object, names: Sequence[str], mask: Mask) -> Data:
    """The same of a job or an attempt, whose texts may repeat a secret."""
    data = _data(thing, names)
    data["error"] = mask(data["error"])
    if data["progress"] is not None:
        data["progress"]["text"] = mask(data["progress"]["text"])
    return data


def _plain(value: Any) -> Any:
    """A value of a handle as JSON has it."""
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, Progress):
        return {"fraction": value.fraction, "text": value.text}
    return list(value) if isinstance(value, tuple) else value


def ended_over(app: Towline, by: By, **where: Unpack[StatsWhere]) -> list[EndedJobs]:
    """What ended, over time: all queues and tasks together, which is far less to read than each."""
    op = app.runner.store.stats(stats_filter(where), minutes_of(by), whole=True)
    return ended_jobs(app.runner.run(op), by)


def ended_data(ended: Sequence[EndedJobs]) -> Data:
    """All of these jobs together: how many ended, how many of them badly, how long they ran, and
    how long they waited before."""
    number = sum(jobs.count for jobs in ended)
    failed = sum(jobs.count for jobs in ended if END_STATE[jobs.outcome] is State.FAILED)
    return {
        "ended": number,
        "failed": failed,
        "failure_rate": failed / number if number else None,
        "run": _times_data(together(jobs.run for jobs in ended)),
        "wait": _times_data(together(jobs.wait for jobs in ended)),
    }


def _times_data(times: Times) -> Data:
    """Seconds."""
    return {"p50": times.p50, "p95": times.p95, "p99": times.p99}


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
