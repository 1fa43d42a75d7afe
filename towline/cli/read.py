"""Commands that only look: jobs, job, chain, stats, workers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Unpack

import click

from .. import views
from ..app import Towline
from ..app.answers import AtLeast, AttemptInfo
from ..app.filters import JobsWhere
from ..app.handles import Job
from ..model import State
from ..times import length
from . import output
from .filters import as_json, cursor_of, filters, job_id
from .target import Command
from .tasks import first_line

HOUR = timedelta(hours=1)
USUAL = (State.PENDING, State.RUNNING, State.COMPLETED, State.FAILED)


@click.command(cls=Command)
@filters
@click.option("--limit", default=50, show_default=True, help="How many at most, up to 10000.")
@click.option("--cursor", type=cursor_of, metavar="CURSOR", help="Go on after an earlier page.")
@click.option("--oldest", is_flag=True, help="Oldest first.")
@as_json
def jobs(
    app: Towline,
    limit: int,
    cursor: str | None,
    oldest: bool,
    as_json: bool,
    **where: Unpack[JobsWhere],
) -> None:
    """List jobs, newest first."""
    page = app.jobs(limit=limit, cursor=cursor, newest=not oldest, **where)
    if as_json:
        output.print_json({"jobs": views.jobs_data(app, page), "cursor": page.cursor})
        return
    show_jobs(app, list(page), app.now())
    if page.cursor is not None:
        output.say(f"\nthere may be more: --cursor {page.cursor}", "dim")


def show_jobs(app: Towline, jobs: list[Job[Any]], now: datetime) -> None:
    """A table of jobs, or a line that says there is none."""
    if not jobs:
        output.say("no jobs", "dim")
        return
    reasons = views.Reasons(app)
    output.table(
        [
            (
                job.id,
                job.state,
                job.task,
                job.queue,
                job.attempt or "",
                output.distance(job.created_at, now),
                note_of(job, now, reasons),
            )
            for job in jobs
        ],
        *("id", "state", "task", "queue", "attempt", "created", ""),
        right=("id", "attempt"),
        elastic=("task", "queue", ""),
    )


def note_of(job: Job[Any], now: datetime, reasons: views.Reasons) -> str:
    """What is worth knowing about a job in its state, in a few words."""
    words = [job.label or ""]
    if job.state is State.RUNNING:
        words.append(f"for {output.took(job.started_at, now)}")
        words.append(progress_of(job) or "")
    elif job.state is State.BLOCKED:
        words.append(f"waits for {job.open_blockers}")
    elif job.state is State.SCHEDULED:
        words.append(output.distance(job.run_at, now))
    elif job.state is State.PENDING:
        words.append(reasons.of(job) or "")
    elif job.state is State.COMPLETED:
        words.append(f"took {output.took(job.started_at, job.ended_at)}" if job.started_at else "")
        words.append(f"continued by {job.continued_by}" if job.continued_by else "")
    if job.state is not State.COMPLETED:
        words.append(output.last_line(job.error))
    return " · ".join(word for word in words if word)


def progress_of(job: Job[Any]) -> str | None:
    progress = job.progress
    if progress is None:
        return None
    fraction: object = progress.fraction
    done = f"{fraction:.0%}" if isinstance(fraction, int | float) else ""  # or written by hand
    return " ".join(word for word in (done, progress.text) if word)


@click.command(cls=Command, words="ID", least=1, most=1)
@as_json
def job(app: Towline, words: tuple[str, ...], as_json: bool) -> None:
    """Show one job: its attempts, its errors, what it waits for."""
    found = app.job(job_id(words[0]))
    if as_json:
        output.print_json(views.full_job_data(app, found))
        return
    now = app.now()
    task = app.registry.get(found.task)
    output.facts(
        [
            ("job", found.id),
            ("task", found.task),
            ("", None if task is None else first_line(task)),
            ("state", found.state),
            ("why", app.why(found.id)),
            ("label", found.label),
            ("queue", found.queue),
            ("priority", found.priority or None),
            ("key", found.key),
            ("chain", f"{found.chain_id}, job {found.position + 1} of it"),
            ("continued by", found.continued_by),
            ("attempt", found.attempt or None),
            (
                "failures",
                f"{found.record.used or 0} of {found.max_attempts}" if found.state.open else None,
            ),
            ("progress", progress_of(found)),
            ("created", output.both(found.created_at, now)),
            ("due", output.both(found.run_at, now) if found.state is State.SCHEDULED else None),
            ("started", output.both(found.started_at, now)),
            ("ended", output.both(found.ended_at, now)),
            ("ended by", found.ended_by),
            ("arguments", found.arguments),
            ("output", views.output_of(found)),
        ]
    )
    show_attempts(app.attempts(found.id), now)
    if blockers := app.blockers(found.id):
        output.title("waits for" if found.state is State.BLOCKED else "waited for")
        output.table(
            [(b.chain_id, b.state, b.task, b.name, output.last_line(b.error)) for b in blockers],
            *("chain", "state", "task", "name", ""),
            right=("chain",),
            elastic=("task", "name", ""),
        )
    if found.error and found.state is not State.COMPLETED:
        cancelled = found.state is State.CANCELLED
        output.title("why it was cancelled" if cancelled else "last error")
        output.say(found.error)


def show_attempts(attempts: list[AttemptInfo], now: datetime) -> None:
    if not attempts:
        return
    output.title("attempts")
    output.table(
        [
            (
                attempt.number,
                attempt.outcome or "running",
                output.distance(attempt.started_at, now),
                output.took(attempt.started_at, attempt.ended_at or now),
                attempt.worker or attempt.ended_by,
                output.last_line(attempt.error),
            )
            for attempt in attempts
        ],
        *("number", "outcome", "started", "took", "worker", ""),
        right=("number",),
        elastic=("worker", ""),
    )


@click.command(cls=Command, words="ID", least=1, most=1)
@click.option("--limit", default=1000, show_default=True, help="How many jobs at most.")
@as_json
def chain(app: Towline, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show a chain by its first job's id: its jobs in order, who waits for it."""
    id = job_id(words[0])
    found = app.chain(id)
    members = app.jobs(chain=id, newest=False, limit=limit)
    dependents = app.dependents(id)
    if as_json:
        output.print_json(
            {
                **views.chain_data(found),
                "jobs": views.jobs_data(app, members),
                "cursor": members.cursor,
                "dependents": [views.dependent_data(dependent) for dependent in dependents],
                "blockers": views.blockers_data(app, id),
            }
        )
        return
    now = app.now()
    result = None if found.last is None else views.output_of(found.last)
    output.facts(
        [
            ("chain", found.id),
            ("task", found.task),
            ("state", found.state),
            ("label", found.label),
            ("key", found.key),
            ("created", output.both(found.created_at, now)),
            ("ended", output.both(found.ended_at, now)),
            ("output", result),
        ]
    )
    output.title("jobs")
    show_jobs(app, list(members), now)
    if dependents:
        output.title("who waits for it")
        output.table(
            [(d.job_id, d.task, d.name) for d in dependents],
            *("job", "task", "name"),
            right=("job",),
            elastic=("task", "name"),
        )


@click.command(cls=Command)
@as_json
def stats(app: Towline, as_json: bool) -> None:
    """Count jobs by queue and state; paused queues, workers, the last hour."""
    paused = app.paused()
    counts = app.counts()
    queues = {queue: counts.get(queue, {}) for queue in sorted({*counts, *paused})}
    now = app.now()
    workers = app.workers()
    slots = sum(worker.concurrency for worker in workers)
    busy = sum(len(worker.running) for worker in workers)
    waiting = app.jobs(state=State.PENDING, newest=False, limit=1)
    oldest = waiting[0].created_at if waiting else None
    totals = {str(state): sum_of([of.get(state, 0) for of in counts.values()]) for state in State}
    hour = views.ended_data(app.stats(since=now - HOUR))
    if as_json:
        output.print_json(
            {
                "queues": {
                    queue: {**views.counts_data(of), "paused": queue in paused}
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
    show_counts(queues, totals)
    lines = [f"paused: {', '.join(paused)}"] if paused else []
    use = f", {busy} of {slots} slots busy" if workers else ""
    lines.append(f"{len(workers)} worker{'s' * (len(workers) != 1)}{use}")
    if oldest is not None:
        lines.append(f"oldest pending job: {output.distance(oldest, now)}")
    if hour["ended"]:
        lines.append(last_hour(hour))
    output.say("\n" + "\n".join(lines))


def last_hour(hour: views.Data) -> str:
    """How many jobs ended, and how long they ran."""
    words = [f"last hour: {hour['ended']} ended"]
    words += [f"{hour['failed']} failed"] if hour["failed"] else []
    for name in ("p50", "p95", "p99"):
        if hour[name] is not None:
            words.append(f"{name} {length(timedelta(seconds=hour[name]))}")
    return " · ".join(words)


def show_counts(counts: dict[str, dict[str, int]], totals: dict[str, int]) -> None:
    """A line for each queue; a rare state has a column only when something is in it."""
    if not counts:
        output.say("no jobs yet", "dim")
        return
    states = [state for state in State if state in USUAL or totals[state]]
    rows = [(queue, *(shown(of.get(s, 0)) for s in states)) for queue, of in counts.items()]
    if len(rows) > 1:
        rows.append(("total", *(shown(totals[state]) for state in states)))
    names = [str(state) for state in states]
    output.table(rows, "queue", *names, right=names, elastic=("queue",))


def shown(number: int) -> str:
    return str(number) if number else "·"


def sum_of(numbers: list[int]) -> int:
    """The sum; "at least" when one of them is."""
    total = sum(int(number) for number in numbers)
    return AtLeast(total) if any(isinstance(number, AtLeast) for number in numbers) else total


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
                f"{len(worker.running)}/{worker.concurrency}",
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
