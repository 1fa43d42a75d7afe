"""What was enqueued: a list, and an assertion that says what there is instead."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from ..app import Towline
from ..app.filters import JobsWhere
from ..app.handles import Job
from ..errors import InvalidSetting
from ..task import Call, Task
from ..times import micros, to_micros

if TYPE_CHECKING:
    from typing import Unpack

PAGE = 1000
SHOWN = 20  # jobs in a failed assertion
# What `using(...)` may say that is a fact about a job, by the name it has there.
FACTS = ("queue", "priority", "label", "key", "max_attempts")


def enqueued(app: Towline, **where: Unpack[JobsWhere]) -> list[Job[Any]]:
    """Every job that fits the filters of `app.jobs`, oldest first, ended ones too."""
    jobs: list[Job[Any]] = []
    cursor: str | None = None
    while True:
        page = app.jobs(limit=PAGE, cursor=cursor, newest=False, **where)
        jobs += page
        cursor = page.cursor
        if cursor is None:
            return jobs


def assert_enqueued(
    wanted: Task[..., Any] | Call[Any], *, times: int | None = None
) -> list[Job[Any]]:
    """Fail unless the call was enqueued, `times` times or at least once; return those jobs.

    A task stands for any arguments; `task.call(…)` for these; `task.using(…).call(…)` also for
    what it says of queue, priority, label, key, max_attempts, timeout, delay or at. It looks for
    jobs in any state, so it may come before or after a drain; `times=0` says that there is none.
    """
    __tracebackhide__ = True  # pytest shows where the test says it, not how it was found out
    call = wanted if isinstance(wanted, Call) else None
    task = wanted.task if isinstance(wanted, Call) else wanted
    if call is not None and (call.options.after or call.options.on is not None):
        raise InvalidSetting("after= and on= are not compared: look at app.blockers(job.id)")
    app = task.app
    assert isinstance(app, Towline)
    there = enqueued(app, task=task.name)
    found = [job for job in there if call is None or _fits(call, job)]
    if len(found) == times or (times is None and found):
        return found
    said = f"{task.name}{'' if call is None else _said(call)}"
    if times is None:
        problem = f"{said} was not enqueued"
    else:
        problem = f"{said} was enqueued {_often(len(found))}, not {_often(times)}"
    raise AssertionError(f"{problem}; {_inventory(app, task.name, there)}")


def _fits(call: Call[Any], job: Job[Any]) -> bool:
    options, record = call.options, job.record
    facts = [(getattr(options, name), getattr(record, name)) for name in FACTS]
    if options.timeout is not None:
        facts.append((micros(options.timeout), record.timeout))
    due = record.run_at if record.run_at is not None else record.last_run_at
    if options.at is not None:
        facts.append((to_micros(options.at), due))
    if options.delay is not None:
        facts.append((record.created_at + micros(options.delay), due))
    return record.arguments == call.arguments and all(
        said is None or said == is_ for said, is_ in facts
    )


def _said(call: Call[Any]) -> str:
    """A call the way it is written."""
    names = (*FACTS, "timeout", "delay", "at")
    given = [(name, getattr(call.options, name)) for name in names]
    said = ", ".join(f"{name}={value!r}" for name, value in given if value is not None)
    return f"{_arguments(call.arguments)}{f' with {said}' if said else ''}"


def _arguments(text: str) -> str:
    values = json.loads(text)
    if not isinstance(values, dict):
        return f"({text})"
    return f"({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def _inventory(app: Towline, task: str, there: list[Job[Any]]) -> str:
    lines = [f"  {_line(job)}" for job in there[:SHOWN]]
    if len(there) > SHOWN:
        lines.append(f"  … and {len(there) - SHOWN} more")
    others = Counter(job.task for job in enqueued(app) if job.task != task)
    rest = ", ".join(f"{name} × {number}" for name, number in sorted(others.items()))
    if not there:
        return f"there is no job of {task}" + (f", only {rest}" if rest else ", nor of any other")
    if rest:
        lines.append(f"and others: {rest}")
    return "\n".join([f"these jobs of {task} are there:", *lines])


def _line(job: Job[Any]) -> str:
    said = [f"queue={job.queue!r}"]
    said += [f"{name}={value!r}" for name in ("label", "key") if (value := getattr(job, name))]
    if job.priority:
        said.append(f"priority={job.priority}")
    return f"job {job.id} {job.task}{_arguments(job.arguments)} {job.state}, {', '.join(said)}"


def _often(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
