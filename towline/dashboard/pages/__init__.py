"""The pages, in the order of the menu. A new one is a file, its template, and a line here."""

from __future__ import annotations

from ..page import Page
from . import (
    audit,
    chain,
    doctor,
    graph,
    group,
    job,
    jobs,
    lanes,
    many,
    overview,
    queues,
    schedules,
    tasks,
    workers,
)

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    jobs.PAGE,
    queues.PAGE,
    tasks.PAGE,
    schedules.PAGE,
    workers.PAGE,
    doctor.PAGE,
    audit.PAGE,
    lanes.PAGE,
    many.PAGE,
    job.PAGE,
    chain.PAGE,
    group.PAGE,
    graph.PAGE,
)
