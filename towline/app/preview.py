"""What an action on many would do: to how many jobs, of which states and tasks, and which it passes
over for what reason. A bounded number of jobs is looked at; nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Unpack

from msgspec import Struct

from ..errors import InvalidSetting
from ..model import State
from ..store.control import BULK
from .filters import JobsWhere, bulk_filter
from .handles import Job
from .reading import Reading

PAGE = 500
PAGES = 4  # of that many jobs; each looks at a bounded number of rows, also when few of them fit
DELETE = "delete"
WHY_NOT = {
    "retry": "only failed and cancelled jobs can be retried",
    "cancel": "it has ended",
    "run_now": "only scheduled jobs can be told to run now",
    DELETE: "it is running: cancel it first",
}


class Group(Struct, frozen=True):
    """Jobs of one state and task; `skipped` says why nothing would be done to them."""

    state: State
    task: str
    number: int
    skipped: str | None


class Preview(Struct, frozen=True):
    """How many would be changed and how many not; not `complete`: there are more than that."""

    changed: int
    skipped: int
    chains: int  # those of the jobs that would be changed
    groups: tuple[Group, ...]
    complete: bool


def preview(app: Reading, action: str, **where: Unpack[JobsWhere]) -> Preview:
    """What `retry`, `cancel`, `run_now` or `delete`, done to all jobs that fit, would do by now."""
    if action not in WHY_NOT:
        raise InvalidSetting(f"{action!r} is not one of {', '.join(WHY_NOT)}")
    bulk_filter("preview()", where, everything=False)
    jobs: list[Job[Any]] = []
    cursor: str | None = None
    for _ in range(PAGES):
        page = app.jobs(limit=PAGE, cursor=cursor, **where)
        jobs += page
        if (cursor := page.cursor) is None:
            break
    reasons = [_why_not(action, job.state) for job in jobs]
    if action == DELETE and jobs:
        reasons = _still_needed(app, jobs, reasons)
    counted = Counter(
        (job.state, job.task, reason) for job, reason in zip(jobs, reasons, strict=True)
    )
    changed = [job for job, reason in zip(jobs, reasons, strict=True) if reason is None]
    return Preview(
        changed=len(changed),
        skipped=len(jobs) - len(changed),
        chains=len({job.chain_id for job in changed}),
        groups=tuple(
            Group(state, task, number, reason)
            for (state, task, reason), number in sorted(
                counted.items(), key=lambda group: (group[0][2] is not None, -group[1])
            )
        ),
        complete=cursor is None,
    )


def _why_not(action: str, state: State) -> str | None:
    fits = state is not State.RUNNING if action == DELETE else state in BULK[action]
    return None if fits else WHY_NOT[action]


def _still_needed(
    app: Reading, jobs: Sequence[Job[Any]], reasons: Sequence[str | None]
) -> list[str | None]:
    """The reasons, with what open jobs that stay wait for."""
    chains = sorted({job.chain_id for job in jobs})
    needed = app.runner.run(app.runner.store.needed(chains))
    return [
        reason or (f"job {needed[job.chain_id]} waits for it" if job.chain_id in needed else None)
        for job, reason in zip(jobs, reasons, strict=True)
    ]
