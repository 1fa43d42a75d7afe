"""Looks the database, its workers and its jobs over. Each check yields findings that say what to
do."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from .app import Towline
from .app.answers import WorkerInfo
from .app.handles import Job
from .app.limits import Lane, Limit
from .engine import NOTE, OK, PROBLEM, Finding
from .errors import NotFound, SchemaMissing, StoreError
from .model import Outcome, State
from .naming import EVERY
from .times import distance, length

LONG_WAIT = timedelta(minutes=5)
USUAL_LEASE = timedelta(seconds=30)  # of a worker that is gone
LEASES = 10  # a job that runs for more of them is named
LOOKED_AT = 200  # jobs per check, and lanes of a queue
PATIENCE = timedelta(seconds=10)  # in which a lane that could go on does
SCHEDULES = 1000
DAY = timedelta(days=1)
LOST_STATES = (State.SCHEDULED, State.RUNNING, State.FAILED)  # and pending ones, the oldest


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
    yield from _schedules(app)
    yield from _limits(app, workers, counts, now)
    pending = app.jobs(state=State.PENDING, newest=False, limit=LOOKED_AT)
    yield from _waiting(app, pending, now)
    yield from _long(app, workers, now)
    yield from _lost(app, pending, now)


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
        if queue == EVERY:
            text = "every queue is paused"
        name = f'"{queue}"' if queue == EVERY else queue  # a shell would make files of it
        yield Finding(NOTE, "queue", text, f"towline resume {name}")
    for queue, states in counts.items():
        number = states.get(State.PENDING, 0)
        served = any(worker.serves(queue) for worker in workers)
        if number and not served and {queue, EVERY}.isdisjoint(paused):
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


def _schedules(app: Towline) -> Iterator[Finding]:
    """Those that nobody fires, and those whose jobs take longer than the time between two ticks."""
    for schedule in app.schedules(limit=SCHEDULES):
        if not schedule.paused and schedule.record.next_at is not None and schedule.reason:
            yield Finding(
                PROBLEM,
                "schedule",
                f"schedule {schedule.name} does not tick: {schedule.reason}",
                "start a worker of the release that has the task; if it is gone for good: "
                f"towline schedule {schedule.name} pause",
            )
        elif schedule.skipped > schedule.ticks:
            yield Finding(
                NOTE,
                "schedule",
                f"schedule {schedule.name} was skipped more often than run: {schedule.skipped} "
                f"times of {schedule.skipped + schedule.ticks}",
                "its jobs take longer than the time between two ticks: fewer ticks, or "
                'overlap="queue" or "allow"',
            )


def _limits(
    app: Towline, workers: list[WorkerInfo], counts: dict[str, dict[str, int]], now: datetime
) -> Iterator[Finding]:
    """Limits nobody uses, lanes without one, lanes that sleep, limits full of old jobs."""
    limits = app.limits()
    queues = {limit.queue for limit in limits}
    known = {task.queue for task in app.registry.values()}
    served = {queue for queue in queues if any(worker.serves(queue) for worker in workers)}
    for queue in sorted(queues - served - known - counts.keys()):
        yield Finding(
            NOTE, "limit", f"queue {queue} has a limit, and nobody uses it",
            f"is it spelt right? towline limit {queue} --none",
        )  # fmt: skip
    for limit in limits:
        yield from _filled(app, limit, now)
    each = {limit.queue for limit in limits if limit.lane is not None}
    for task in app.registry.values():
        if task.lane is not None and task.queue not in each:
            yield Finding(
                NOTE, "lane",
                f"task {task.name} has lanes, and no lane of queue {task.queue} has a limit: they "
                "take turns, and one may fill every worker",
                f"towline limit {task.queue} --lane '*' --concurrency N",
            )  # fmt: skip
    asleep = [lane for queue in sorted(counts) for lane in _asleep(app, queue, now)]
    for lane in asleep:
        yield Finding(
            PROBLEM, "lane",
            f"lane {lane.lane} of queue {lane.queue} is {lane.state} with {lane.waiting} jobs and "
            "room for them: this is a bug of Towline, please report it",
            f"towline limit {lane.queue} --lane '*' --concurrency N opens it",
        )  # fmt: skip
    if limits and not asleep:
        yield Finding(OK, "limits", f"{len(limits)} set; no lane sleeps")


def _asleep(app: Towline, queue: str, now: datetime) -> Iterator[Lane]:
    """Lanes that are closed though they have work and room. Looked at twice: the first may have
    come between two steps."""
    if not queue.isprintable():
        return
    found = {lane.lane for lane in app.lanes(queue, limit=LOOKED_AT) if _could_go_on(lane, now)}
    if found:
        again = app.lanes(queue, limit=LOOKED_AT)
        yield from (lane for lane in again if lane.lane in found and _could_go_on(lane, now))


def _could_go_on(lane: Lane, now: datetime) -> bool:
    if not lane.waiting:
        return False
    if lane.state == "full":
        return lane.running == 0 and lane.concurrency != 0
    late = lane.opens_at is not None and now - lane.opens_at > PATIENCE
    return lane.state == "resting" and late


def _filled(app: Towline, limit: Limit, now: datetime) -> Iterator[Finding]:
    if not limit.concurrency or (limit.running or 0) < limit.concurrency:
        return
    page = app.jobs(state=State.RUNNING, queue=limit.queue, lane=limit.lane, newest=False)
    begun = now - LEASES * USUAL_LEASE
    old = [job for job in page if job.started_at is not None and job.started_at < begun]
    if old and len(old) == len(page):
        where = f"queue {limit.queue}" + (f", lane {limit.lane}" if limit.lane else "")
        tasks = ", ".join(sorted({job.task for job in old}))
        yield Finding(
            NOTE, "limit", f"the limit of {where} is full of jobs that run for long: {tasks}",
            "give them a timeout=, or raise the limit",
        )  # fmt: skip


def _waiting(app: Towline, pending: Sequence[Job[Any]], now: datetime) -> Iterator[Finding]:
    """Parked and paused ones have lines of their own."""
    paused = app.paused()
    waiting = [job for job in pending if job.reason is None and job.queue not in paused]
    if EVERY in paused:
        waiting = []
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


def _lost(app: Towline, pending: Sequence[Job[Any]], now: datetime) -> Iterator[Finding]:
    """Jobs of the last day whose worker died or did not renew its lease in time. They wait for a
    turn or have failed: the many that completed, or never ran, need not be looked at."""
    there = app.jobs(outcome=Outcome.LOST, state=LOST_STATES, since=now - DAY, limit=LOOKED_AT)
    lost = [*there, *(job for job in pending if job.outcome == Outcome.LOST)]
    for task, number in sorted(Counter(job.task for job in lost).items()):
        yield Finding(
            NOTE,
            "lost",
            f"jobs of task {task} that lost their worker within the last day: {number}; it died, "
            "or was stalled for longer than its lease",
            'if the handler crashes or holds the GIL, run_in="process" keeps it away from others',
        )
