"""Following: jobs as they come and change, a line for each; one job to the end of its chain.

Each look is woken by the app, as callers of `result()` are, or comes after a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Any

from .. import views
from ..app import Towline
from ..app.filters import JobsWhere
from ..app.handles import Job
from ..app.shown import Mask
from ..brief import brief
from ..exit_codes import FAILED, OK
from ..model import ChainState
from . import output
from .progress import Bar, is_shown

WATCHED = 200  # jobs whose changes are seen: the newest that fit
GAP = 0.2  # seconds from one look to the next, however much happens


class Watched:
    """The newest jobs that fit; those that changed since the last look."""

    def __init__(self, app: Towline, where: JobsWhere, *, progress: bool = True) -> None:
        self._app = app
        self._where = where
        self._progress = progress
        self._known: dict[int, tuple[object, ...]] = {}
        self._last: int | None = None  # the newest of the last look

    def changes(self) -> list[Job[Any]]:
        """Those that are new or not as they were, oldest first."""
        now = {job.id: job for job in self._newest()}
        before = self._known
        self._known = {id: self._mark(job) for id, job in now.items()}
        self._last = max([self._last or 0, *now])
        return [now[id] for id in sorted(now) if self._known[id] != before.get(id)]

    def _newest(self) -> Iterator[Job[Any]]:
        """As many as are watched, and any more that have come since the last look."""
        cursor: str | None = None
        while True:
            page = self._app.jobs(limit=WATCHED, cursor=cursor, **self._where)
            yield from page
            cursor = page.cursor
            if cursor is None or self._last is None or int(cursor) <= self._last:
                return

    def _mark(self, job: Job[Any]) -> tuple[object, ...]:
        """What makes a line when it changes."""
        shown = (job.state, job.attempt, job.continued_by, job.worker)
        return (*shown, job.progress) if self._progress else shown


def looks(app: Towline) -> Iterator[None]:
    with closing(app.runner.waiting.looks(None)) as looks:
        for _ in looks:
            yield
            time.sleep(GAP)


def follow_jobs(app: Towline, where: JobsWhere, limit: int, as_json: bool) -> None:
    """The newest ones, then every change, until somebody has seen enough. How far each is would be
    most of the lines, so that alone makes none."""
    watched = Watched(app, where, progress=False)
    most: int | None = limit
    for _ in looks(app):
        changed = watched.changes()
        show_lines(app, changed if most is None else changed[-most:], as_json)
        most = None


def follow_job(app: Towline, id: int, as_json: bool) -> int:
    """Every change of a chain's jobs until it ends; how far it is on a bar, at a terminal."""
    chain_id = app.job(id).chain_id
    watched = Watched(app, {"chain": chain_id}, progress=not is_shown())
    with Bar(f"job {id}", 1.0, counts=False) as bar:
        for _ in looks(app):
            chain = app.chain(chain_id)
            show_lines(app, watched.changes(), as_json)
            if chain.state is not ChainState.OPEN:
                break
            if chain.last is not None and (progress := chain.last.progress) is not None:
                bar.show(progress.fraction, Mask(chain.last)(progress.text))
    return OK if app.chain(chain_id).state is ChainState.COMPLETED else FAILED


def show_lines(app: Towline, jobs: list[Job[Any]], as_json: bool) -> None:
    if not jobs:
        return
    if as_json:
        for data in views.jobs_data(app, jobs):
            output.print_json_line(data)
    else:
        now = app.now()
        for job, data in zip(jobs, views.jobs_data(app, jobs), strict=True):
            show_line(job, now, brief(data, now))
    output.flush()


def show_line(job: Job[Any], now: datetime, note: str) -> None:
    from rich.text import Text

    line = Text(f"{now.astimezone():%H:%M:%S}  {job.id:>6}  ")
    line.append(f"{job.state:<9}", style=output.STYLES[job.state])
    line.append(output.shown_text(f"  {job.task}  {job.queue}  {note}".rstrip(), lines=False))
    output.show(line, wrap=False)
