"""Schedules as they cross the store: to be set, and as they stand. See `records`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec import Struct

from .records import NewJob
from .ticks import Timing


class NewSchedule(Struct, frozen=True):
    """A schedule to be set: the job that each tick gives, and when it ticks. Times and durations
    are microseconds."""

    name: str
    job: NewJob
    timing: Timing
    jitter: int = 0
    catch_up: int = 1
    overlap: str = "skip"

    @property
    def template(self) -> str:
        """The job as it is stored until its ticks: what is said of it, no more."""
        said = {name: getattr(self.job, name) for name in TEMPLATE}
        return json.dumps({name: value for name, value in said.items() if value is not None})

    @property
    def digest(self) -> str:
        """What is said of it, in short."""
        plan = (self.job.task, self.template, self.timing, self.jitter, self.catch_up, self.overlap)
        return digest_of([repr(plan)])


# What a schedule keeps of its job: all but what a tick decides, and what no tick can know.
_OF_TICKS = (
    "task", "delay", "at", "key", "scope", "window", "on_conflict", "blockers", "policy", "trace",
    "expires_at", "schedule", "tick", "ordered", "inherit_queue", "inherit_priority", "children",
    "given",
)  # fmt: skip
TEMPLATE = tuple(name for name in NewJob.__struct_fields__ if name not in _OF_TICKS)


def digest_of(texts: Iterable[str]) -> str:
    """Texts in short: the same for the same, in whatever order."""
    from hashlib import blake2b  # only workers need it

    return blake2b("\0".join(sorted(texts)).encode(), digest_size=12).hexdigest()


class ScheduleRecord(NamedTuple):
    """A schedule as it stands."""

    name: str
    task: str
    template: str
    cron: str | None
    every: int | None
    tz: str
    start_at: int | None
    end_at: int | None
    jitter: int
    catch_up: int
    overlap: str
    declared: str | None
    declared_in: str | None
    next_at: int | None
    paused_at: int | None
    paused_by: str | None
    last_tick: int | None
    last_chain: int | None
    ticks: int
    skipped: int
    missed: int

    @property
    def timing(self) -> Timing:
        return Timing(*self[3:8])

    def job(self, **of_tick: Any) -> NewJob:
        """The job of a tick. What a newer release keeps and this one does not know is left out."""
        said = json.loads(self.template)
        known = {name: said[name] for name in TEMPLATE if name in said}
        return NewJob(self.task, schedule=self.name, **known, **of_tick)

    @property
    def plan(self) -> NewSchedule:
        """What is said of it now, perhaps by an operator since it was declared."""
        return NewSchedule(
            self.name, self.job(), self.timing, self.jitter, self.catch_up, self.overlap
        )
