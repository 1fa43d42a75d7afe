"""What the model holds of limits and schedules, and how reads show it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.model.program import Plan, Seen

SLOTS = 20  # of a window

Starts = list[tuple[int, int]]
"""When something began, and its weight."""


@dataclass
class Limit:
    """How much may run at a time, and begin in any window."""

    concurrency: int | None
    rate: int | None
    per: int

    def counts(self, start: int, now: int) -> bool:
        """G4: whether a start is in some window with now. Starts are told apart no better than by
        the slot they fall into, so that one counts up to a slot longer."""
        return self.over_at(start) > now

    def over_at(self, start: int) -> int:
        width = -(-self.per // SLOTS)
        return (start // width + 1) * width + self.per

    def seen(self, running: int | None) -> Seen:
        rated = self.rate is not None
        return {
            "concurrency": self.concurrency, "rate": self.rate,
            "per": self.per if rated else None, "running": running,
        }  # fmt: skip


@dataclass
class Schedule:
    """A schedule as it stands."""

    plan: Plan
    next_at: int
    paused_at: int | None = None
    paused_by: str | None = None
    last_tick: int | None = None
    last_chain: str | None = None
    ticks: int = 0
    skipped: int = 0
    missed: int = 0

    def after(self, moment: int) -> int:
        """The first tick later than a moment: they count from 1970."""
        return (moment // self.plan.every + 1) * self.plan.every

    def anew(self, plan: Plan, now: int) -> Schedule:
        """With another plan: its next tick changes only if its times do."""
        fresh = replace(self, plan=plan)
        if plan.every != self.plan.every:
            fresh.next_at = fresh.after(now)
        return fresh

    def seen(self) -> Seen:
        """As `ScheduleRecord`, with a chain's name in place of its id."""
        plan = self.plan
        return {
            "task": plan.task, "every": plan.every, "catch_up": plan.catch_up,
            "overlap": plan.overlap, "next_at": self.next_at, "paused_at": self.paused_at,
            "paused_by": self.paused_by, "last_tick": self.last_tick,
            "last_chain": self.last_chain, "ticks": self.ticks, "skipped": self.skipped,
            "missed": self.missed,
        }  # fmt: skip
