"""What a handle, a list and a page give back. Never run, only checked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, assert_type

from towline import Call, Chain, ChainState, Job, Next, State, Task, Tasks, Towline

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


@tasks.task
def check(a: int) -> bool:
    return a > 0


def one(job: Job[int], connection: object) -> None:
    assert_type(job.result(), int)
    assert_type(job.result(5), int)
    assert_type(job.result(timeout=0.5, on=connection), int)
    assert_type(job.refresh(), Job[int])
    assert_type(job.refresh(on=connection).result(), int)
    assert_type(job.cancel("no need", by="me"), Job[int])
    assert_type(job.retry(), Job[int])
    assert_type(job.id, int)
    assert_type(job.created, bool)
    assert_type(job.state, State)
    assert_type(job.created_at, datetime)
    assert_type(job.ended_at, datetime | None)
    assert_type(job.output, Any)
    assert_type(job.error, str | None)


def a_wider_type_will_do(job: Job[bool], call: Call[bool], following: Next[bool]) -> None:
    """Result types are covariant."""
    number: Job[int] = job
    wider: Job[int | str] = job
    thing: Job[object] = job
    jobs: Sequence[Job[int]] = [job]
    later: Call[int] = call
    then: Next[int] = following
    task: Task[[int], int] = check
    print(number, wider, thing, jobs, later, then, task)


def takes_any_job(job: Job[Any]) -> int:
    return job.id


def many(app: Towline, calls: list[Call[int]]) -> None:
    """A batch may hold calls of any task, so its jobs do not say what they end with."""
    jobs = app.enqueue_many([add.call(1), check.using(key="k").call(2)])
    assert_type(jobs, list[Job[Any]])
    assert_type(jobs[0].result(), Any)
    first: Job[int] = jobs[0]
    assert_type(first.result(), int)
    app.enqueue_many(calls, on=object())
    takes_any_job(add.enqueue(1))


def lists(app: Towline) -> None:
    assert_type(app.job(1), Job[Any])
    assert_type(app.chain(1), Chain)
    assert_type(app.chain(1).state, ChainState)
    page = app.jobs(state="failed", task="add", limit=5)
    assert_type(page.cursor, str | None)
    assert_type(page[0], Job[Any])
    assert_type(page[1:], Sequence[Job[Any]])
    for job in app.jobs(cursor=page.cursor, state=State.RUNNING):
        assert_type(job, Job[Any])
    assert_type(app.chains()[0], Chain)
    assert_type(app.counts(), dict[str, dict[str, int]])
    assert_type(app.complete(1, add.then(2)), Job[Any])
