"""How jobs are shown in lists: a table of them, and what is worth knowing about each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .. import views
from ..app import Towline
from ..app.handles import Job
from ..model import State
from ..text import gist
from . import output


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
        words.append(gist(job.error))
    return " · ".join(word for word in words if word)


def progress_of(job: Job[Any]) -> str | None:
    progress = job.progress
    if progress is None:
        return None
    fraction: object = progress.fraction
    done = f"{fraction:.0%}" if isinstance(fraction, int | float) else ""  # or written by hand
    return " ".join(word for word in (done, progress.text) if word)
