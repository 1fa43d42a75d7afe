"""How jobs are shown in lists: a table of them, and how far they are."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from .. import views
from ..app import Towline
from ..app.handles import Job
from ..app.shown import Mask
from ..brief import brief, progress_in_words
from . import output


def show_jobs(app: Towline, jobs: list[Job[Any]], now: datetime) -> None:
    """A table of jobs, or a line that says there is none."""
    if not jobs:
        output.say("no jobs", "dim")
        return
    output.table(
        [
            (
                job.id,
                job.state,
                job.task,
                job.queue,
                job.attempt or "",
                output.distance(job.created_at, now),
                brief(data, now),
            )
            for job, data in zip(jobs, views.jobs_data(app, jobs), strict=True)
        ],
        *("id", "state", "task", "queue", "attempt", "created", ""),
        right=("id", "attempt"),
        elastic=("task", "queue", ""),
    )


def progress_of(job: Job[Any]) -> str | None:
    progress = job.progress
    if progress is None:
        return None
    return progress_in_words(progress.fraction, Mask(job)(progress.text))
