"""Every option of `using` and of `task`, in each form it may take. Never run, only checked."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from towline import Backoff, Call, Chain, Job, Tasks

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


@tasks.task(
    name="shop.greet",
    queue="mail",
    priority=5,
    max_attempts=3,
    timeout=timedelta(minutes=1),
    backoff=Backoff(first=2.0, never=(KeyError,)),
    run_in="process",
)
def greet(name: str) -> str:
    return name


@tasks.task()
def bare(name: str) -> str:
    return name


@tasks.task(name=None, queue=None, priority=None, timeout=2.5, backoff=None, run_in="thread")
def said_nothing() -> None: ...


assert_type(greet.enqueue("you"), Job[str])
assert_type(bare.enqueue("you"), Job[str])


def when_and_where(connection: sqlite3.Connection) -> None:
    add.using(delay=5).enqueue(1)
    add.using(delay=0.5, priority=-3, queue="slow", label="nightly").enqueue(1)
    add.using(delay=timedelta(hours=1), max_attempts=7, timeout=30).enqueue(1)
    add.using(at=datetime.now(UTC), trace=None).enqueue(1)
    add.using(delay=None, at=None, priority=None, queue=None, label=None, key=None).enqueue(1)
    add.using(on=connection).enqueue(1)
    add.using().enqueue(1)


def once() -> None:
    add.using(key="k").enqueue(1)
    add.using(key="k", scope="open", on_conflict="return").enqueue(1)
    add.using(key="k", scope="any", window=60, on_conflict="raise").enqueue(1)
    add.using(key="k", scope="any", window=timedelta(days=1), on_conflict="replace").enqueue(1)


def behind(job: Job[int], other: Job[str], chain: Chain, call: Call[bytes]) -> None:
    add.using(after=[job, other, chain, call, 17]).enqueue(1)
    add.using(after=(job,)).enqueue(1)
    add.using(after=[]).enqueue(1)
    add.using(after={"sum": job, "name": other, "all": chain, "late": call, "id": 17}).enqueue(1)
    jobs: list[Job[int]] = [job]
    by_name: dict[str, Job[str]] = {"name": other}
    found: Job[Any] = job
    add.using(after=jobs, on_blocker_failure="fail").enqueue(1)
    add.using(after=by_name, on_blocker_failure="wait").enqueue(1)
    add.using(after=[found], on_blocker_failure="run").enqueue(1)
