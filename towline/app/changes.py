"""Changing jobs that wait, and running what has completed once more, each method twice."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ..errors import InvalidSetting
from ..naming import check_name, check_priority, check_queue
from ..times import check_moment, to_micros
from .filters import check_id
from .handles import Job
from .waits import Waits


class Changes(Waits):
    """What one does to a job without ending it."""

    def change(
        self, id: int, *, priority: int | None = None, at: datetime | None = None,
        queue: str | None = None, label: str | None = None, by: str | None = None,
        on: object = None,
    ) -> Job[Any]:  # fmt: skip
        """Give an open job another priority, time, queue or label; InvalidState while it runs."""
        said = changes_of(priority, at, queue, label)
        return Job(self, self.runner.run(self._store.change(check_id(id), said, by), on))

    async def achange(
        self, id: int, *, priority: int | None = None, at: datetime | None = None,
        queue: str | None = None, label: str | None = None, by: str | None = None,
        on: object = None,
    ) -> Job[Any]:  # fmt: skip
        said = changes_of(priority, at, queue, label)
        return Job(self, await self.runner.arun(self._store.change(check_id(id), said, by), on))

    def rerun(self, id: int, *, by: str | None = None, on: object = None) -> Job[Any]:
        """Run a completed chain again, as a new one with the same arguments; what the first one
        waited for is there for the new one, too. What failed is retried instead."""
        return Job(self, self.runner.run(self._store.rerun(check_id(id), by), on), created=True)

    async def arerun(self, id: int, *, by: str | None = None, on: object = None) -> Job[Any]:
        record = await self.runner.arun(self._store.rerun(check_id(id), by), on)
        return Job(self, record, created=True)


def changes_of(
    priority: int | None, at: datetime | None, queue: str | None, label: str | None
) -> dict[str, Any]:
    """What is to be changed, by the names of the record."""
    check_priority(priority)
    check_queue(queue)
    check_name(label, "label")
    if at is not None:
        check_moment(at, "at=")
    run_at = None if at is None else to_micros(at)
    given = {"priority": priority, "run_at": run_at, "queue": queue, "label": label}
    said = {name: value for name, value in given.items() if value is not None}
    if not said:
        raise InvalidSetting("change() needs priority=, at=, queue= or label=")
    return said
