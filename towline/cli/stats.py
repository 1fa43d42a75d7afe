"""Commands that look at the whole: stats, workers."""

from __future__ import annotations

from datetime import timedelta

import click

from .. import views
from ..app import Towline
from ..app.answers import living
from ..model import State
from ..naming import EVERY
from ..times import length
from . import output
from .filters import as_json
from .target import Command

HOUR = timedelta(hours=1)
USUAL = (State.PENDING, State.RUNNING, State.COMPLETED, State.FAILED)


@click.command(cls=Command)
@click.option("--tasks", is_flag=True, help="Count by task instead, and nothing else.")
@as_json
def stats(app: Towline, tasks: bool, as_json: bool) -> None:
    """Count jobs by queue and state; paused queues, workers, the last hour."""
    if tasks:
        show_tasks(app, as_json)
        return
    paused = app.paused()
    counts = app.counts()
    queues = {queue: counts.get(queue, {}) for queue in sorted({*counts, *paused} - {EVERY})}
    now = app.now()
    registered = app.workers()
    workers = living(registered, now)
    slots = sum(worker.concurrency for worker in workers)
    busy = sum(worker.busy for worker in workers)
    waiting = app.jobs(state=State.PENDING, newest=False, limit=1)
    oldest = waiting[0].created_at if waiting else None
    totals = views.totals(counts)
    hour = views.ended_data(app.stats(since=now - HOUR))
    if as_json:
        output.print_json(
            {
                "queues": {
                    queue: {
                        **views.counts_data(of),
                        "paused": not {queue, EVERY}.isdisjoint(paused),
                    }
                    for queue, of in queues.items()
                },
                "total": views.counts_data(totals),
                "oldest_pending": views.time_text(oldest),
                "workers": len(workers),
                "slots": slots,
                "running": busy,
                "last_hour": hour,
            }
        )
        return
    show_counts("queue", queues, totals)
    lines = [f"paused: {', '.join(paused)}"] if paused else []
    use = f", {busy} of {slots} slots busy" if workers else ""
    gone = len(registered) - len(workers)
    silent = f", {gone} whose lease has ended" if gone else ""
    lines.append(f"{len(workers)} worker{'s' * (len(workers) != 1)}{use}{silent}")
    if oldest is not None:
        lines.append(f"oldest pending job: {output.distance(oldest, now)}")
    if hour["ended"]:
        lines.append(last_hour(hour))
    output.say("\n" + "\n".join(lines))


def last_hour(hour: views.Data) -> str:
    """How many jobs ended, how long they waited and ran."""
    words = [f"last hour: {hour['ended']} ended"]
    words += [f"{hour['failed']} failed"] if hour["failed"] else []
    for what in ("wait", "run"):
        known = [(name, seconds) for name, seconds in hour[what].items() if seconds is not None]
        told = [f"{name} {length(timedelta(seconds=seconds))}" for name, seconds in known]
        words += [f"{what} {' '.join(told)}"] if told else []
    return " · ".join(words)


def show_tasks(app: Towline, as_json: bool) -> None:
    counts = app.counts(by="task")
    totals = views.totals(counts)
    if as_json:
        data = {task: views.counts_data(of) for task, of in counts.items()}
        output.print_json({"tasks": data, "total": views.counts_data(totals)})
    else:
        show_counts("task", counts, totals)


def show_counts(what: str, counts: dict[str, dict[str, int]], totals: dict[str, int]) -> None:
    """A line for each queue or task; a rare state has a column only when something is in it."""
    if not counts:
        output.say("no jobs yet", "dim")
        return
    states = [state for state in State if state in USUAL or totals[state]]
    rows = [(name, *(shown(of.get(s, 0)) for s in states)) for name, of in counts.items()]
    if len(rows) > 1:
        rows.append(("total", *(shown(totals[state]) for state in states)))
    names = [str(state) for state in states]
    output.table(rows, what, *names, right=names, elastic=(what,))


def shown(number: int) -> str:
    return str(number) if number else "·"


@click.command(cls=Command)
@as_json
def workers(app: Towline, as_json: bool) -> None:
    """List the workers that are registered."""
    now = app.now()
    found = app.workers()
    if as_json:
        output.print_json({"workers": [views.worker_data(worker, now) for worker in found]})
        return
    if not found:
        output.say("no workers: start one with `towline worker MODULE:APP`", "dim")
        return
    output.table(
        [
            (
                worker.name,
                f"{worker.host}/{worker.pid}",
                f"{worker.busy}/{worker.concurrency}",
                output.distance(worker.started_at, now),
                output.distance(worker.seen_at, now),
                ", ".join(worker.queues) + " · lease ran out" * (worker.lease_until < now),
            )
            for worker in found
        ],
        *("worker", "host/pid", "busy", "started", "seen", "queues"),
        right=("busy",),
        elastic=("worker", "host/pid", "queues"),
    )
