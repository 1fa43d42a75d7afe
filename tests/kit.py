"""Small things tests are written with: a clock, new jobs, endings, and an auditor's eye."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from towline.model import Outcome, State
from towline.operation import Op, Steps
from towline.records import Claimed, Ending, JobRecord, NewBlocker, NewJob
from towline.store import Store, read
from towline.store.turn import Turn

if TYPE_CHECKING:
    from tests.database import Database

ROOT = Path(__file__).resolve().parents[1]
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class Clock:
    """The time in microseconds, moved by hand."""

    def __init__(self, start: int = 1_800_000_000 * SECOND) -> None:
        self.time = start

    def __call__(self) -> int:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += round(seconds * SECOND)


# A claimed job that no database has; `_replace` what a test looks at.
CLAIMED = Claimed(
    job_id=1, attempt=1, queue="default", priority=0, chain_id=1, position=0, task="t",
    arguments="[]", used=0, lost=0, max_attempts=1, timeout=None, key=None, label=None, blockers=0,
    trace=None, lane=None, weight=None, expires_at=None, tick=None, created_at=0, run_at=0,
    claimed_at=0, worker=1,
)  # fmt: skip


def new(task: str = "a", *, after: Sequence[int] = (), **fields: Any) -> NewJob:
    """A job to store, behind the given chains."""
    fields.setdefault("arguments", "{}")
    if after:
        fields["blockers"] = [NewBlocker(chain_id=chain) for chain in after]
    return NewJob(task, **fields)


def completed(held: Claimed, output: str | None = "null") -> Ending:
    return Ending(held, Outcome.COMPLETED, output=output)


def continued(held: Claimed, following: NewJob) -> Ending:
    return Ending(held, Outcome.CONTINUED, next=following)


def failed(held: Claimed, error: str = "boom", delay: int | None = None) -> Ending:
    return Ending(held, Outcome.FAILED, error=error, delay=delay)


def register(
    store: Store, name: str = "w1", *, lease: int = 30 * SECOND, drawn: bool = False
) -> Steps[int]:
    """Enter a worker; `worker = yield from register(store)`. The first has number 1, unless it is
    to be drawn by lot, as workers do it."""
    number: int | None = None
    if not drawn:
        number = 1 + max((worker.id for worker in (yield from store.workers())), default=0)
    return (
        yield from store.register(
            name,
            host="here",
            pid=1,
            birth=None,
            version="0",
            queues=["default"],
            concurrency=8,
            lease=lease,
            number=number,
        )
    )


def claim(
    store: Store, room: int = 1, worker: int = 1, queues: Sequence[str] = ("default",)
) -> Steps[list[Claimed]]:
    return (yield from store.claim(worker, queues, room))


def beat(store: Store, room: int) -> Steps[Turn]:
    """One turn of worker "w", registered when it first takes one."""
    known = [record.id for record in (yield from store.workers()) if record.name == "w"]
    worker = known[0] if known else (yield from register(store, "w"))
    return (yield from store.turn(worker, "w", ["default"], room))


def put(store: Store, *jobs: NewJob) -> Steps[list[int]]:
    """Store jobs and return their ids."""
    return [record.id for record, _ in (yield from store.enqueue(jobs))]


def states(store: Store, *ids: int) -> Steps[list[State]]:
    """Where these jobs stand, in the order of the ids."""
    return [record.state for record in (yield from read.records(store, ids))]


def end(store: Store, job: int, state: str) -> Op[JobRecord]:
    """End a job from outside: completed, failed or cancelled."""
    if state == "completed":
        return store.complete(job, f'"output of {job}"')
    if state == "failed":
        return store.fail(job, f"job {job} is broken")
    return store.cancel(job, f"job {job} is not wanted")


def finish_all(store: Store) -> Steps[list[int]]:
    """Claim and complete until nothing is pending; the jobs in the order they ran."""
    ran: list[int] = []
    while held := (yield from claim(store, 10)):
        ran += [job.job_id for job in held]
        yield from store.finish([completed(job) for job in held])
    return ran


def rows(database: Path | Database, text: str, *params: Any) -> list[tuple[Any, ...]]:
    """Look at the tables with plain SQL, past the library."""
    if not isinstance(database, Path):
        return database.rows(text, *params)
    connection = sqlite3.connect(database, isolation_level=None)
    try:
        return connection.execute(text, params).fetchall()
    finally:
        connection.close()


@contextmanager
def package_for_all() -> Iterator[Path]:
    """A folder with a copy of the package that every user can read: a checkout may be its owner's
    alone, file by file."""
    with tempfile.TemporaryDirectory(prefix="towline-") as name:
        copy = Path(name).resolve()
        shutil.copytree(ROOT / "towline", copy / "towline")
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield copy
