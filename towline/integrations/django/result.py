"""A job as Django's TaskResult.

blocked, scheduled, pending     READY
running                         RUNNING
completed                       SUCCESSFUL
failed, cancelled               FAILED
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from ...app.answers import AttemptInfo
from ...app.handles import Job
from ...errors import NotFound
from ...model import Outcome, State, type_of
from ...times import to_datetime, to_datetime_or_none
from ...worker.attempt import Attempt
from ...worker.ending import describe
from . import shim

Status = shim.TaskResultStatus

STATUS = {
    State.RUNNING: Status.RUNNING,
    State.COMPLETED: Status.SUCCESSFUL,
    State.FAILED: Status.FAILED,
    State.CANCELLED: Status.FAILED,
}
# What a failed attempt is called that raised nothing.
UNRAISED = {Outcome.TIMEOUT: "builtins.TimeoutError", Outcome.LOST: "towline.errors.LeaseLost"}
ERRORS = (Outcome.FAILED, Outcome.TIMEOUT, Outcome.LOST)


def result_of(task: Any, job: Job[Any], attempts: Sequence[AttemptInfo], alias: str) -> Any:
    """What is known of a job now."""
    stored = json.loads(job.arguments)
    begun = [each for each in attempts if each.started_at is not None]
    result = shim.TaskResult(
        task=as_enqueued(task, job, alias),
        id=str(job.id),
        status=STATUS.get(job.state, Status.READY),
        enqueued_at=_local(job.created_at),
        started_at=_local(begun[0].started_at) if begun else None,
        last_attempted_at=_local(begun[-1].started_at) if begun else None,
        finished_at=_local(job.ended_at),
        args=stored.get("args", []),
        kwargs=stored.get("kwargs", {}),
        backend=alias,
        errors=[_error(each) for each in attempts if each.outcome in ERRORS],
        worker_ids=[each.worker or "" for each in begun],
    )
    if job.state is State.COMPLETED:
        object.__setattr__(result, "_return_value", job.output)
    return result


def running_result(attempt: Attempt, alias: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What an attempt knows of its own job. Those before it are read, if there were any."""
    from .declaring import declared

    held = attempt.held
    runner = attempt.app.runner
    now = _local(to_datetime_or_none(attempt.started_at)) or timezone.now()
    before: list[AttemptInfo] = []
    if held.attempt > 1:
        try:
            records = runner.run(runner.store.attempts(held.job_id))
        except NotFound:  # deleted meanwhile: its end will be refused
            records = []
        before = [AttemptInfo.of(each) for each in records if each.number < held.attempt]
    begun = [each for each in before if each.started_at is not None]
    return shim.TaskResult(
        task=_like(
            declared(held.task), priority=held.priority, queue_name=held.queue, backend=alias
        ),
        id=str(held.job_id),
        status=Status.RUNNING,
        enqueued_at=_local(to_datetime(held.created_at)),
        started_at=_local(begun[0].started_at) if begun else now,
        last_attempted_at=now,
        finished_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[_error(each) for each in before if each.outcome in ERRORS],
        worker_ids=[*(each.worker or "" for each in begun), attempt.worker],
    )


def end(result: Any, status: Any, *, value: Any = None, error: BaseException | None = None) -> None:
    """How it ended, as the attempt itself knows it."""
    now: datetime = timezone.now()
    for name, given in (("status", status), ("finished_at", now), ("_return_value", value)):
        object.__setattr__(result, name, given)
    if error is not None:
        result.errors.append(_raised(type_of(error), describe(error)))


def as_enqueued(task: Any, job: Job[Any], alias: str) -> Any:
    """The task as it was for this job, as far as that is stored."""
    first = job.state is State.SCHEDULED and job.attempt == 0
    return _like(
        task,
        priority=job.priority,
        queue_name=job.queue,
        backend=alias,
        run_after=_local(job.run_at) if first else None,
    )


def _like(task: Any, **changes: Any) -> Any:
    """A copy, which is not asked whether TASKS still allows it, nor imported by its path."""
    copy = object.__new__(type(task))
    for field in fields(task):
        value = changes.get(field.name, getattr(task, field.name))
        object.__setattr__(copy, field.name, value)
    return copy


def _local(when: datetime | None) -> Any:
    """As the project has its times: without USE_TZ, by its clock and without a zone."""
    if when is None or settings.USE_TZ:
        return when
    return timezone.make_naive(when)


def _error(attempt: AttemptInfo) -> Any:
    kind = attempt.error_type
    if kind is None and attempt.outcome is not None:
        kind = UNRAISED.get(attempt.outcome, "builtins.Exception")
    return _raised(kind or "builtins.Exception", attempt.error or "")


def _raised(kind: str | None, text: str) -> Any:
    return shim.TaskError(
        exception_class_path=kind or "builtins.Exception", traceback=text.rstrip("\n") + "\n"
    )
