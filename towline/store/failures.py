"""What failed for good, by task and kind of error: of the newest jobs that ended badly, as many as
a page of a list examines."""

from __future__ import annotations

from typing import NamedTuple

from ..model import OUTCOMES, Outcome
from ..operation import Steps
from .ground import FOREVER, Ground, int_of
from .listing import EXAMINED
from .stats import StatsFilter


class FailureRecord(NamedTuple):
    """Jobs of one task that failed with one kind of error; a raised one has its class."""

    task: str
    outcome: Outcome
    error_type: str | None
    number: int
    first_at: int
    last_at: int
    job_id: int  # the newest of them


class Failures(NamedTuple):
    """The most frequent first. `complete`: nothing older was left out."""

    groups: list[FailureRecord]
    complete: bool


def failures(store: Ground, filter: StatsFilter) -> Steps[Failures]:
    rows = yield store.sql.group_failures(
        since=filter.since or 0,
        until=FOREVER if filter.until is None else filter.until,
        queue=filter.queue,
        task=filter.task,
        cursor=FOREVER,
        limit=EXAMINED,
    )
    examined = sum(int_of(number) for _, _, _, number, *_ in rows)
    groups = [
        FailureRecord(
            str(task),
            OUTCOMES[int_of(outcome)] or Outcome.FAILED,
            None if error is None else str(error),
            *(int_of(number) for number in numbers),
        )
        for task, outcome, error, _, *numbers in rows
        if numbers[0]
    ]
    groups.sort(key=lambda group: (-group.number, -group.last_at))
    return Failures(groups, examined < EXAMINED)
