"""All that the code of an app declares, which its workers write when they start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..cron import Cron
from ..operation import Op
from ..schedule import NewSchedule, digest_of
from ..store.limit import Numbers
from ..store.schedule import ScheduleSeen
from ..task import Call
from .limits import Limits
from .schedules import Schedules


class Declarations(NamedTuple):
    """What the code of an app declares, and all of it in short."""

    digest: str
    schedules: list[NewSchedule]
    limits: Mapping[tuple[str, str], Numbers]  # by queue and lane
    queues: list[str]  # of whose limits the code decides: those of its tasks, and what it declares


class Declaring(Schedules, Limits):
    """Schedules and limits, as they are declared."""

    def _set_schedule(
        self, name: str, call: Call[Any], cron: Cron | str, by: str | None
    ) -> Op[ScheduleSeen]:
        made = super()._set_schedule(name, call, cron, by)
        self.refuse_too_heavy(call.new_job(()))
        return made

    def declarations(self) -> Declarations:
        """All that the code declares by now, checked."""
        schedules = self.declared_schedules()
        for new in schedules:
            self.refuse_too_heavy(new.job)
        limits = dict(self.declared_limits)
        queues = {task.queue for task in self.registry.values()} | {queue for queue, _ in limits}
        # With the tasks, so that apps that declare nothing are told apart.
        texts = [f"{new.name} {new.digest}" for new in schedules]
        texts += [f"limit {place} {tuple(numbers)}" for place, numbers in limits.items()]
        texts += [f"task {name}" for name in self.registry]
        return Declarations(digest_of(texts), schedules, limits, sorted(queues))
