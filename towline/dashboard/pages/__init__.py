"""The pages, in the order of the menu. A new one is a file, its template, and a line here."""

from __future__ import annotations

from ..page import Page
from . import chain, job, jobs, overview, queues, tasks, workers

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    jobs.PAGE,
    queues.PAGE,
    tasks.PAGE,
    workers.PAGE,
    job.PAGE,
    chain.PAGE,
)
