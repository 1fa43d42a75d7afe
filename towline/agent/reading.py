"""The tools that read. Ids are texts; no word of a payload, an error or a key stands in an answer,
except in `untrusted`."""

from __future__ import annotations

import inspect
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .. import views
from ..app.filters import JobsWhere, parse_id
from ..app.handles import Job
from ..doctor import examine
from ..engine import OK
from ..errors import WaitTimeout
from ..model import State
from ..naming import EVERY
from ..times import moment_of
from .texts import NAME, named, untrusted, without_lane
from .tool import Data, Desk, Refused, Tool

if TYPE_CHECKING:
    from ..app import Towline

PAGE = 50
QUEUES = 50  # of an overview
TASKS = 100
MOST_TEXT = 500  # characters of a task's description
ON_LANES = ("lane", "limit")  # findings that may name lanes, which are arguments of jobs
TIMES = ("created_at", "run_at", "started_at", "ended_at")

Id = Annotated[str, Meta(pattern="^[0-9]+$")]
Since = Annotated[str, Meta(description="ISO time, or how long ago: 15m, 2h, 3d")]
States = Literal["blocked", "scheduled", "pending", "running", "completed", "failed", "cancelled"]


class Nothing(Struct, forbid_unknown_fields=True):
    pass


class OneJob(Struct, forbid_unknown_fields=True):
    id: Id


class Where(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which jobs; each that is said must fit."""

    state: States | UnsetType = UNSET
    task: str | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    since: Since | UnsetType = UNSET


class ListJobs(Where):
    limit: Annotated[int, Meta(ge=1, le=PAGE)] = 20
    cursor: str | UnsetType = UNSET


class ListErrors(Struct, forbid_unknown_fields=True):
    since: Since = "24h"


class ListTasks(Struct, forbid_unknown_fields=True):
    search: Annotated[str, Meta(description="part of a name")] = ""


class WaitFor(Struct, forbid_unknown_fields=True):
    id: Id
    seconds: Annotated[float, Meta(ge=0, le=30)] = 10


# ---- parts of answers


def id_of(text: str) -> int:
    number = parse_id(text)
    if number is None:
        raise Refused(f"no job has the id {text[:40]!r}")
    return number


def where_of(asked: Where) -> JobsWhere:
    """The filter as the app takes it."""
    where: JobsWhere = {}
    for name in ("state", "task", "queue"):
        if (value := getattr(asked, name)) is not UNSET:
            where[name] = value
    if asked.since is not UNSET:
        where["since"] = since_of(asked.since)
    return where


def since_of(text: str) -> datetime:
    try:
        return moment_of(text)
    except (ValueError, OverflowError):
        raise Refused(
            f"since is a time (2026-05-01T12:00Z) or how long ago (15m, 2h, 3d), not {text[:40]!r}"
        ) from None


def job_data(job: Job[Any]) -> Data:
    """A job without its texts; what is empty is left out."""
    error = job.record.last_error_type
    data: Data = {
        "id": str(job.id),
        "chain": str(job.chain_id),
        "task": named(job.task),
        "queue": named(job.queue),
        "state": str(job.state),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "outcome": None if job.outcome is None else str(job.outcome),
        "error_type": None if error is None else named(error)[:NAME],
        **{name: views.time_text(getattr(job, name)) for name in TIMES},
    }
    return {name: value for name, value in data.items() if value is not None}


def _attempts(desk: Desk, job: Job[Any]) -> list[Data]:
    """The newest attempts, without their texts."""
    kept = ("number", "outcome", "error_type", "worker", "started_at", "ended_at", "ended_by")
    found = views.attempts_data(desk.app, job)[-PAGE:]
    return [
        {
            name: named(value) if isinstance(value := attempt[name], str) else value
            for name in kept
            if attempt[name] is not None
        }
        for attempt in found
    ]


def _blockers(desk: Desk, id: int) -> list[Data]:
    found = views.blockers_data(desk.app, id)[:PAGE]
    return [
        {"chain": str(each["chain_id"]), "state": str(each["state"]), "task": named(each["task"])}
        for each in found
    ]


def _longest_wait(app: Towline, queue: str, now: datetime) -> int:
    """How long the first jobs of a queue have waited, in seconds: from when on they could run, so
    the job with the smallest id need not be the one."""
    pending = app.jobs(state=State.PENDING, queue=queue, newest=False, limit=PAGE)
    ready = [max(job.created_at, job.run_at or job.created_at) for job in pending]
    return round((now - min([now, *ready])).total_seconds())


# ---- the tools


def overview(desk: Desk, _: Nothing) -> Data:
    app = desk.app
    now, workers, counts, paused = app.now(), app.workers(), app.counts(), app.paused()
    shows_lanes = "payloads" in desk.rules.show
    queues: Data = {}
    for queue, states in islice(counts.items(), QUEUES):
        known: Data = {state: int(number) for state, number in states.items()}
        if known.get(State.PENDING) and queue.isprintable() and len(queue) <= NAME:
            known["oldest_pending_seconds"] = _longest_wait(app, queue, now)
        known["served"] = any(worker.serves(queue) for worker in workers)
        queues[named(queue)[:NAME]] = known
    return {
        "now": views.time_text(now),
        "queues": queues,
        "paused": ["every queue" if name == EVERY else named(name) for name in paused],
        "workers": [
            {
                "name": named(worker.name),
                "queues": [named(queue) for queue in worker.queues],
                "running": worker.busy,
                "concurrency": worker.concurrency,
                "lease_expired": worker.lease_until < now,
            }
            for worker in workers[:QUEUES]
        ],
        "findings": [
            {
                "level": finding.level,
                "text": named(finding.text)
                if shows_lanes or finding.about not in ON_LANES
                else f"a {finding.about} needs a look: `towline doctor` names it",
                "advice": finding.advice,
            }
            for finding in examine(app)
            if finding.level != OK
        ],
    }


def list_jobs(desk: Desk, asked: ListJobs) -> Data:
    cursor = None if asked.cursor is UNSET else asked.cursor
    page = desk.app.jobs(limit=asked.limit, cursor=cursor, **where_of(asked))
    return {"jobs": [job_data(job) for job in page], "cursor": page.cursor}


def get_job(desk: Desk, asked: OneJob) -> Data:
    app, id = desk.app, id_of(asked.id)
    job = app.job(id)
    data = job_data(job)
    why = app.why(id)
    data["why"] = named(why if "payloads" in desk.rules.show else without_lane(why, job))
    data["attempts"] = _attempts(desk, job)
    if job.record.blockers:
        data["blockers"] = _blockers(desk, id)
    if texts := untrusted(app, desk.rules, job):
        data["untrusted"] = texts
    return data


def get_chain(desk: Desk, asked: OneJob) -> Data:
    app = desk.app
    chain = app.chain(app.job(id_of(asked.id)).chain_id)
    jobs = app.jobs(chain=chain.id, limit=PAGE)
    dependents = app.dependents(chain.id)
    return {
        "id": str(chain.id),
        "task": named(chain.task),
        "state": str(chain.state),
        "created_at": views.time_text(chain.created_at),
        "ended_at": views.time_text(chain.ended_at),
        "jobs": [job_data(job) for job in reversed(jobs)],
        "older_jobs": jobs.cursor is not None,
        "blockers": _blockers(desk, chain.id),
        "needed_by": [str(each.job_id) for each in dependents[:PAGE]],
    }


def list_errors(desk: Desk, asked: ListErrors) -> Data:
    found = views.failures_data(desk.app, since=since_of(asked.since))
    errors = [
        {
            "task": named(group["task"]),
            "outcome": str(group["outcome"]),
            "error_type": group["error_type"] and named(group["error_type"])[:NAME],
            "count": group["number"],
            "first_at": group["first_at"],
            "last_at": group["last_at"],
            "id": str(group["job_id"]),
        }
        for group in found["failures"][:PAGE]
    ]
    return {"errors": errors, "complete": found["complete"]}


def list_tasks(desk: Desk, asked: ListTasks) -> Data:
    """The application's own words: a docstring and a signature are code, no stored text."""
    known = [
        task
        for name, task in sorted(desk.app.registry.items())
        if desk.rules.covers(name) and asked.search in name
    ]
    tasks = [
        {
            "name": task.name,
            "queue": task.queue,
            "description": (inspect.getdoc(task.function) or "")[:MOST_TEXT],
            "arguments": task.signature.schema,
        }
        for task in known[:TASKS]
    ]
    return {"tasks": tasks, "more": max(0, len(known) - TASKS)}


async def wait(desk: Desk, asked: WaitFor) -> Data:
    """Awaits, so that a client that goes away is not waited for."""
    app = desk.app
    job = await app.ajob(id_of(asked.id))
    ended = True
    try:
        await app.await_([job], timeout=asked.seconds)
    except WaitTimeout:
        ended = False
    chain = await app.achain(job.chain_id)
    assert chain.last is not None
    return {"ended": ended, "chain_state": str(chain.state), "job": job_data(chain.last)}


READING = (
    Tool("overview", "Counts by queue and state, paused queues, workers, what is wrong.", Nothing,
         overview),
    Tool("list_jobs", "Jobs, newest first; give cursor to go on.", ListJobs, list_jobs),
    Tool("get_job", "One job: its attempts, and why it is not running.", OneJob, get_job),
    Tool("get_chain", "The chain of a job: its jobs, what it waits for, what needs it.", OneJob,
         get_chain),
    Tool("list_errors", "What failed for good, by task and error type, with one id each.",
         ListErrors, list_errors),
    Tool("list_tasks", "Tasks with the JSON schema of their arguments.", ListTasks, list_tasks),
    Tool("wait", "Wait for the end of a job's chain, at most 30 s.", WaitFor, wait),
)  # fmt: skip
