"""Looks the database, its workers and its jobs over. Each check yields findings that say what to
do."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from .app import Towline
from .app.answers import WorkerInfo
from .engine import NOTE, OK, PROBLEM, Finding
from .errors import NotFound, SchemaMissing, StoreError
from .model import Outcome, State
from .times import distance, length

LONG_WAIT = timedelta(minutes=5)
USUAL_LEASE = timedelta(seconds=30)  # of a worker that is gone
LEASES = 10  # a job that runs for more of them is named
LOOKED_AT = 200  # jobs per check
DAY = timedelta(days=1)


def check(app: Towline) -> None:
    """See that the database and its tables are there. Looking must create neither: a path may be
    mistyped, and a release may be older than the one that should migrate."""
    try:
        app.runner.prepare(create=False)
    except SchemaMissing as error:
        if app.runner.engine.exists() and (there := _prefixes(app)):
            raise SchemaMissing(
                f"the database has no Towline tables with prefix {app.settings.engine.prefix}; "
                f"there are tables with prefix {', '.join(there)}: name it with --prefix, or "
                "create others with `towline migrate`"
            ) from error
        raise


def _prefixes(app: Towline) -> list[str]:
    """Whose tables there are, each with its schema where that is another one."""
    own = app.settings.engine.server.schema
    found = app.runner.prefixes()
    return [p if schema in ("", own) else f"{p} (--schema {schema})" for p, schema in found]


def examine(app: Towline) -> Iterator[Finding]:
    """Everything worth a line, the database first; without it nothing else can be known."""
    try:
        check(app)
    except StoreError as error:
        yield Finding(PROBLEM, "database", str(error))
        return
    engine = app.runner.engine
    yield Finding(OK, "database", f"{engine.place}: reachable, tables up to date")
    yield from engine.checks()
    now = app.now()
    workers = app.workers()
    counts = app.counts()
    yield from _workers(app, workers, now)
    yield from _queues(app, workers, counts)
    yield from _parked(app)
    yield from _waiting(app, now)
    yield from _long(app, workers, now)
    yield from _lost(app, now)


def _workers(app: Towline, workers: list[WorkerInfo], now: datetime) -> Iterator[Finding]:
    from .worker.identity import is_gone  # with it come workers, which no other command needs

    late = [worker for worker in workers if worker.lease_until < now]
    for worker in late:
        gone = worker.host == socket.gethostname() and is_gone(worker.pid, worker.birth)
        where = f"worker {worker.name} (process {worker.pid} on {worker.host})"
        if gone:
            text = f"{where} is gone; the next worker takes its jobs over: {len(worker.running)}"
            yield Finding(NOTE, "worker", text)
            continue
        tasks = _tasks_of(app, worker)
        names = f"; it runs {', '.join(tasks)}" if tasks else ""
        yield Finding(
            PROBLEM,
            "worker",
            f"{where} has not renewed its lease since {distance(worker.seen_at, now)}{names}",
            'it hangs, or lost the database, or a handler holds the GIL: use run_in="process" '
            "for that task",
        )
    alive = len(workers) - len(late)
    if alive:
        yield Finding(OK, "workers", f"{alive} registered")
    elif not workers:
        yield Finding(NOTE, "workers", "none is registered", "towline worker MODULE:APP")


def _tasks_of(app: Towline, worker: WorkerInfo) -> list[str]:
    """Whose jobs it holds; one may be deleted this moment."""
    tasks: set[str] = set()
    for id in worker.running[:LOOKED_AT]:
        try:
            tasks.add(app.job(id).task)
        except NotFound:
            pass
    return sorted(tasks)


def _queues(
    app: Towline, workers: list[WorkerInfo], counts: dict[str, dict[str, int]]
) -> Iterator[Finding]:
    paused = app.paused()
    for queue in paused:
        number = counts.get(queue, {}).get(State.PENDING, 0)
        text = f"queue {queue} is paused; pending there: {number}"
        yield Finding(NOTE, "queue", text, f"towline resume {queue}")
    served = {queue for worker in workers for queue in worker.queues}
    for queue, states in counts.items():
        number = states.get(State.PENDING, 0)
        if number and queue not in served and queue not in paused:
            yield Finding(
                PROBLEM,
                "queue",
                f"no worker serves queue {queue}; pending there: {number}",
                f"towline worker MODULE:APP --queues {queue}",
            )


def _parked(app: Towline) -> Iterator[Finding]:
    for task, number in sorted(app.parked().items()):
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


def _long(app: Towline, workers: list[WorkerInfo], now: datetime) -> Iterator[Finding]:
    lease = {worker.name: worker.lease_until - worker.seen_at for worker in workers}
    for job in app.jobs(state=State.RUNNING, newest=False, limit=LOOKED_AT):
        most = lease.get(job.worker or "", USUAL_LEASE) * LEASES
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
