"""What `towline doctor` looks at: each check yields findings that say what to do."""

from __future__ import annotations

import json
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..app import Towline
from ..errors import StoreError
from ..model import Outcome, State, WorkerRecord
from ..sqlite.engine import SqliteEngine
from ..times import MICRO, to_datetime
from ..views import now_of
from ..worker.identity import is_gone
from .output import distance, length
from .target import check

OK, NOTE, PROBLEM = "ok", "note", "problem"

SAFE_SQLITE = (3, 51, 3)
MANY_PAGES = 1000  # that are free; 4 MB of the usual size
OLDEST_POSTGRES = 130_000
CLOCK_SLACK = 2.0  # seconds that clocks may differ before it is worth a line
LONG_WAIT = timedelta(minutes=5)
LONG_TRANSACTION = 600  # seconds
LEASES = 10  # a job that runs longer than so many is named
LOOKED_AT = 200  # jobs per check
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    level: str
    about: str
    text: str
    advice: str | None = None


def examine(app: Towline) -> Iterator[Finding]:
    """Everything worth a line, the database first; without it nothing else can be known."""
    try:
        check(app)
    except StoreError as error:
        yield Finding(PROBLEM, "database", str(error))
        return
    yield Finding(OK, "database", f"{place_of(app)}: reachable, tables up to date")
    row = app.runner.run(app.runner.store.describe())
    yield from _sqlite(*row) if app.runner.engine.name == "sqlite" else _postgres(*row)
    now = now_of(app)
    yield from _clock(app, now)
    workers = app.runner.run(app.runner.store.workers())
    counts = app.counts()
    yield from _workers(app, workers, now)
    yield from _queues(app, workers, counts)
    yield from _parked(app)
    yield from _waiting(app, now)
    yield from _long(app, workers, now)
    yield from _lost(app, now)


def place_of(app: Towline) -> str:
    """Where the database is, without a password."""
    if isinstance(app.runner.engine, SqliteEngine):
        return str(app.runner.engine.file.path)
    return str(getattr(app.runner.engine, "place", "the database"))


def _sqlite(free: Any) -> Iterator[Finding]:
    if sqlite3.sqlite_version_info < SAFE_SQLITE:
        yield Finding(
            NOTE,
            "sqlite",
            f"SQLite {sqlite3.sqlite_version} can damage a file when an automatic checkpoint meets "
            "a writer (mended in 3.51.3); connections of Towline avoid it",
            "on your own connections to this file: PRAGMA wal_autocheckpoint = 0, or upgrade",
        )
    else:
        yield Finding(OK, "sqlite", f"SQLite {sqlite3.sqlite_version}")
    yield Finding(OK, "file", "in WAL mode, on no network file system that is known")
    if free < MANY_PAGES:
        yield Finding(OK, "size", f"free pages: {free}")
    else:
        yield Finding(
            NOTE,
            "size",
            f"free pages: {free}; they are used again, and workers give some back every minute if "
            "the file was made with auto_vacuum",
            "if `towline vacuum` gives none back it was not; to change that, stop everything and "
            "run: PRAGMA auto_vacuum = INCREMENTAL; VACUUM",
        )


def _postgres(version: Any, autovacuum: Any, standby: Any, oldest: Any) -> Iterator[Finding]:
    name = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    if version < OLDEST_POSTGRES:
        yield Finding(PROBLEM, "server", f"{name} is too old", "upgrade to 13 or newer")
    elif standby:
        yield Finding(PROBLEM, "server", f"{name}, a read-only standby", "name the primary")
    else:
        yield Finding(OK, "server", name)
    if autovacuum == "on":
        yield Finding(OK, "autovacuum", "on")
    else:
        yield Finding(
            PROBLEM,
            "autovacuum",
            "off: dead rows pile up and claims get slower every day",
            "set autovacuum = on in the server's configuration",
        )
    if oldest > LONG_TRANSACTION:
        yield Finding(
            NOTE,
            "transactions",
            f"one has been open for {length(timedelta(seconds=oldest))}: dead rows stay as long, "
            "and claims get slower",
            "find it in pg_stat_activity; idle_in_transaction_session_timeout ends such ones",
        )


def _clock(app: Towline, now: datetime) -> Iterator[Finding]:
    if app.runner.engine.name == "sqlite":
        return
    gap = abs(now.timestamp() - time.time())
    if gap > CLOCK_SLACK:
        yield Finding(
            NOTE,
            "clock",
            f"this host's clock differs from the server's by {length(timedelta(seconds=gap))}; "
            "the server's decides, so only what people read is wrong",
            "synchronise the clocks (NTP)",
        )
    else:
        yield Finding(OK, "clock", "this host and the server agree")


def _workers(app: Towline, workers: list[WorkerRecord], now: datetime) -> Iterator[Finding]:
    late = [worker for worker in workers if to_datetime(worker.lease_until) < now]
    for worker in late:
        ids = [job for job, _ in app.runner.run(app.runner.store.running(worker.id))]
        tasks = sorted({record.task for record in app.runner.run(app.runner.store.records(ids))})
        gone = worker.host == socket.gethostname() and is_gone(worker.pid, worker.birth)
        where = f"worker {worker.name} (process {worker.pid} on {worker.host})"
        if gone:
            text = f"{where} is gone; the next worker takes its jobs over: {len(ids)}"
            yield Finding(NOTE, "worker", text)
            continue
        names = f"; it runs {', '.join(tasks)}" if tasks else ""
        yield Finding(
            PROBLEM,
            "worker",
            f"{where} has not renewed its lease since "
            f"{distance(to_datetime(worker.seen_at), now)}{names}",
            'it hangs, or lost the database, or a handler holds the GIL: use run_in="process" '
            "for that task",
        )
    alive = len(workers) - len(late)
    if alive:
        yield Finding(OK, "workers", f"{alive} registered")
    elif not workers:
        yield Finding(NOTE, "workers", "none is registered", "towline worker MODULE:APP")


def _queues(
    app: Towline, workers: list[WorkerRecord], counts: dict[str, dict[str, int]]
) -> Iterator[Finding]:
    paused = app.paused()
    for queue in paused:
        number = counts.get(queue, {}).get(State.PENDING, 0)
        text = f"queue {queue} is paused; pending there: {number}"
        yield Finding(NOTE, "queue", text, f"towline resume {queue}")
    served = {queue for worker in workers for queue in json.loads(worker.queues)}
    for queue, states in counts.items():
        number = states.get(State.PENDING, 0)
        if number and queue not in served and queue not in paused:
            yield Finding(
                PROBLEM,
                "queue",
                f"no worker works on queue {queue}; pending there: {number}",
                f"towline worker MODULE:APP --queues {queue}",
            )


def _parked(app: Towline) -> Iterator[Finding]:
    for task, number in sorted(app.runner.run(app.runner.store.parked()).items()):
        yield Finding(
            PROBLEM,
            "task",
            f"no worker knows task {task}; jobs set aside: {number}",
            "start a worker of the release that has it; cancel them if it is gone for good: "
            f"towline cancel --task {task}",
        )


def _waiting(app: Towline, now: datetime) -> Iterator[Finding]:
    """Parked and paused ones have lines of their own."""
    paused = app.paused()
    page = app.jobs(state=State.PENDING, newest=False, limit=LOOKED_AT)
    waiting = [job for job in page if job.reason is None and job.queue not in paused]
    if not waiting:
        yield Finding(OK, "pending", "nothing waits that could run")
        return
    since = max(job for job in (waiting[0].run_at, waiting[0].created_at) if job is not None)
    level = NOTE if now - since > LONG_WAIT else OK
    yield Finding(
        level,
        "pending",
        f"the oldest is job {waiting[0].id} ({waiting[0].task}), due {distance(since, now)}",
        "more workers, or a larger --concurrency" if level == NOTE else None,
    )


def _long(app: Towline, workers: list[WorkerRecord], now: datetime) -> Iterator[Finding]:
    lease = {worker.name: worker.lease_until - worker.seen_at for worker in workers}
    for job in app.jobs(state=State.RUNNING, newest=False, limit=LOOKED_AT):
        most = timedelta(microseconds=lease.get(job.worker or "", 30 * MICRO) * LEASES)
        if job.started_at is not None and now - job.started_at > most:
            yield Finding(
                NOTE,
                "running",
                f"job {job.id} ({job.task}) has been running for {length(now - job.started_at)}",
                "if that is too long, give its task a timeout=; one in a thread can only be "
                'stopped for certain with run_in="process"',
            )


def _lost(app: Towline, now: datetime) -> Iterator[Finding]:
    """Attempts of the last day whose worker died or did not renew its lease in time."""
    page = app.jobs(outcome=Outcome.LOST, since=now - DAY, limit=LOOKED_AT)
    for task, number in sorted(Counter(job.task for job in page).items()):
        yield Finding(
            NOTE,
            "lost",
            f"jobs of task {task} that lost their worker within the last day: {number}; it died, "
            "or was stalled for longer than its lease",
            'if the handler crashes or holds the GIL, run_in="process" keeps it away from others',
        )
