"""Commands that look at jobs: jobs, job."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Unpack

import click

from .. import views
from ..app import Towline
from ..app.answers import AttemptInfo
from ..app.filters import JobsWhere
from ..app.handles import Job
from ..model import State
from . import output
from .filters import as_json, cursor_of, filters, job_id
from .target import Command
from .tasks import first_line


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
