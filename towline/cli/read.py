"""Commands that look at jobs: jobs, job."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Unpack

import click

from .. import views
from ..app import Towline
from ..app.answers import AttemptInfo
from ..app.filters import JobsWhere, check_limit
from ..app.handles import Job
from ..app.shown import Mask, arguments_text, output_text
from ..exit_codes import OK
from ..model import State
from ..text import gist
from . import output
from .filters import as_json, cursor_of, filters, job_id
from .follow import follow_job, follow_jobs
from .lists import progress_of, show_jobs
from .target import Command
from .tasks import first_line

MOST_BLOCKERS = 100  # that are shown with a job


@click.command(cls=Command)
@filters
@click.option("--limit", default=50, show_default=True, help="How many at most, up to 10000.")
@click.option("--cursor", type=cursor_of, metavar="CURSOR", help="Go on after an earlier page.")
@click.option("--oldest", is_flag=True, help="Oldest first.")
@click.option("--follow", is_flag=True, help="Go on with what is new or changes, until Ctrl-C.")
@as_json
def jobs(
    app: Towline,
    limit: int,
    cursor: str | None,
    oldest: bool,
    follow: bool,
    as_json: bool,
    **where: Unpack[JobsWhere],
) -> None:
    """List jobs, newest first.

    With --follow a line for each, and another for each change, newest last; with --json a document
    a line.
    """
    if follow:
        if cursor is not None or oldest:
            raise click.UsageError("--follow shows the newest: no --cursor, no --oldest")
        follow_jobs(app, where, check_limit(limit), as_json)  # which does not come back
    page = app.jobs(limit=limit, cursor=cursor, newest=not oldest, **where)
    if as_json:
        output.print_json({"jobs": views.jobs_data(app, page), "cursor": page.cursor})
        return
    show_jobs(app, list(page), app.now())
    if page.cursor is not None:
        output.say(f"\nthere may be more: --cursor {page.cursor}", "dim")


@click.command(cls=Command, words="ID", least=1, most=1)
@click.option("--follow", is_flag=True, help="Show each change until the end of its chain.")
@as_json
def job(app: Towline, words: tuple[str, ...], follow: bool, as_json: bool) -> int:
    """Show one job: its attempts, its errors, what it waits for.

    With --follow the exit code is 1 when its chain fails or is cancelled.
    """
    id = job_id(words[0])
    if follow:
        return follow_job(app, id, as_json)
    found = app.job(id)
    if as_json:
        output.print_json(views.full_job_data(app, found))
    else:
        show_job(app, found)
    return OK


def show_job(app: Towline, found: Job[Any]) -> None:
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
            ("lane", found.lane),
            ("weight", found.weight),
            ("priority", found.priority or None),
            ("key", found.key),
            ("schedule", found.schedule),
            ("tick", output.both(found.tick, now)),
            ("chain", f"{found.chain_id}, job {found.position + 1} of it"),
            ("continued by", found.continued_by),
            ("attempt", found.attempt or None),
            (
                "failures",
                f"{found.record.used or 0} of {found.max_attempts}" if found.state.open else None,
            ),
            ("progress", progress_of(found)),
            ("created", output.both(found.created_at, now)),
            ("not after", output.both(found.expires_at, now) if found.state.open else None),
            ("due", output.both(found.run_at, now) if found.state is State.SCHEDULED else None),
            ("started", output.both(found.started_at, now)),
            ("ended", output.both(found.ended_at, now)),
            ("ended by", found.ended_by),
            ("arguments", arguments_text(app, found)),
            ("output", output_text(app, found)),
        ]
    )
    mask = Mask(found)
    show_attempts(app.attempts(found.id), mask, now)
    if lines := app.audit(job=found.id):
        output.title("what people did")
        output.table(
            [(views.DONE[line.action], line.by, output.distance(line.at, now)) for line in lines],
            *("", "by", "when"),
            elastic=("by",),
        )
    if blockers := views.blockers_data(app, found.id, MOST_BLOCKERS):
        output.title("waits for" if found.state is State.BLOCKED else "waited for")
        output.table(
            [(b["chain_id"], b["state"], b["task"], b["name"], gist(b["error"])) for b in blockers],
            *("chain", "state", "task", "name", ""),
            right=("chain",),
            elastic=("task", "name", ""),
        )
    if len(blockers) < found.record.blockers:
        output.say(f"\n{found.record.blockers:,} in all: towline group {found.id}", "dim")
    if found.error and found.state is not State.COMPLETED:
        cancelled = found.state is State.CANCELLED
        output.title("why it was cancelled" if cancelled else "last error")
        output.say(mask(found.error))


def show_attempts(attempts: list[AttemptInfo], mask: Mask, now: datetime) -> None:
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
                gist(mask(attempt.error)),
            )
            for attempt in attempts
        ],
        *("number", "outcome", "started", "took", "worker", ""),
        right=("number",),
        elastic=("worker", ""),
    )
