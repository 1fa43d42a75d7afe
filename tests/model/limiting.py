"""Rules of limits and lanes: how much of a queue, and of a lane of it, may run and begin."""

from __future__ import annotations

from tests.model.flow_tables import Limit
from tests.model.storing import Storing
from tests.model.tables import Job

Place = tuple[str, str]
"""A queue and a lane of it; lane "" is the queue itself."""


class Limiting(Storing):
    """Limits as they are set, and what they let begin."""

    def set_limit(
        self, queue: str, lane: str | None, concurrency: int | None, rate: int | None, per: int
    ) -> None:
        place = queue, lane or ""
        if concurrency is None and rate is None:
            self.tables.limits.pop(place, None)
        else:
            self.tables.limits[place] = Limit(concurrency, rate, per)

    @property
    def has_gates(self) -> bool:
        """Whether something of the tables is limited, or there were lanes: an empty one is there
        until a claim looks at it."""
        return bool(self.tables.limits) or self.had_lanes

    def gated(self, job: Job) -> bool:
        """Whether only who has the gate of its queue may claim it."""
        return job.lane is not None or (job.queue, "") in self.tables.limits

    def limits_of(self, job: Job) -> list[tuple[Place, Limit]]:
        """Those of its queue, and of its lane: the lane's own, or that of each lane."""
        limits, queue = self.tables.limits, job.queue
        found = [((queue, ""), limits.get((queue, "")))]
        if job.lane is not None:
            own = limits.get((queue, job.lane)) or limits.get((queue, "*"))
            found.append(((queue, job.lane), own))
        return [(place, limit) for place, limit in found if limit is not None]

    def admits(self, job: Job) -> bool:
        return not self.is_full(job) and self.opens_at(job) is None

    def is_full(self, job: Job) -> bool:
        """G1, G2: no more runs than a limit says; what is heavier than its limit runs alone."""
        for place, limit in self.limits_of(job):
            running = self.tables.weight_of(*place) or 0
            most = limit.concurrency
            alone = running == 0 and most != 0
            if most is not None and running + (job.weight or 1) > most and not alone:
                return True
        return False

    def opens_at(self, job: Job) -> int | None:
        """G4: when every rate allows it; None: now."""
        opens: list[int] = []
        for place, limit in self.limits_of(job):
            if limit.rate is None:
                continue
            starts = [one for one in self._starts(place) if limit.counts(one[0], self.now)]
            total = sum(weight for _, weight in starts) + (job.weight or 1)
            for start, weight in starts:
                if total <= limit.rate:
                    break
                total -= weight
                opens.append(limit.over_at(start))
        return max(opens, default=None)

    def _starts(self, place: Place) -> list[tuple[int, int]]:
        return self.tables.starts.get(place, [])

    def begins(self, job: Job) -> None:
        """It counts from now on, where a rate is kept."""
        for place, limit in self.limits_of(job):
            if limit.rate is not None:
                self.tables.starts.setdefault(place, []).append((self.now, job.weight or 1))
                self.seen["begun under a rate"] += 1

    def lines_of(self, ready: list[Job]) -> list[list[Job]]:
        """Those that wait behind one another: of a lane, or of a limited queue outside of lanes."""
        lines: dict[Place, list[Job]] = {}
        for job in ready:
            lines.setdefault((job.queue, job.lane or ""), []).append(job)
        return list(lines.values())

    def startable(self) -> set[Place]:
        """Lines whose first job could begin now (G3: each is found)."""
        return {(job.queue, job.lane or "") for job in self._heads() if self.admits(job)}

    def opening(self) -> int | None:
        """When a rate lets the first of some line begin, by itself."""
        heads = (job for job in self._heads() if not self.is_full(job))
        times = (self.opens_at(job) for job in heads)
        return min((time for time in times if time is not None), default=None)

    def _heads(self) -> list[Job]:
        waiting = [job for job in self.ready() if self.gated(job)]
        return [line[0] for line in self.lines_of(waiting)]

    def ready(self) -> list[Job]:
        """L6: what waits, by priority, then age; L8: none of a paused queue."""
        tables = self.tables
        return [
            job
            for job in sorted(tables.jobs.values(), key=lambda job: (-job.priority, job.age))
            if job.is_waiting and job.queue not in tables.paused
        ]
