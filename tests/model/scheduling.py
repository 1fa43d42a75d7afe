"""Rules of schedules: what each tick gives, and what becomes of those that nobody was there for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.model.controlling import Controlling
from tests.model.flow_tables import Schedule
from tests.model.program import New, Plan, Seen, fired_name
from tests.model.tables import Edge, Job
from towline.errors import NotFound
from towline.model import ChainState, Live, Outcome, Policy
from towline.times import to_datetime

ON_TIME = 60_000_000
"""N4: a tick that is later than that is missed."""


class Scheduling(Controlling):
    """Schedules as they are set, and fired."""

    def set_schedule(self, plan: Plan) -> Seen:
        """N6: made anew it keeps its pause and its history."""
        schedules = self.tables.schedules
        old = schedules.get(plan.name)
        if old is None:
            new = Schedule(plan, 0)
            new.next_at = new.after(self.now)
        else:
            new = old.anew(plan, self.now)
        schedules[plan.name] = new
        return new.seen()

    def pause_schedule(self, name: str, by: str | None) -> Seen:
        schedule = self._schedule(name)
        if schedule.paused_at is None:
            schedule.paused_at, schedule.paused_by = self.now, by
        return schedule.seen()

    def resume_schedule(self, name: str) -> Seen:
        """N5: a pause is no outage: it goes on with the next tick after now."""
        schedule = self._schedule(name)
        if schedule.paused_at is not None:
            schedule.paused_at = schedule.paused_by = None
            schedule.next_at = schedule.after(self.now)
        return schedule.seen()

    def delete_schedule(self, name: str) -> None:
        self._schedule(name)
        del self.tables.schedules[name]

    def run_schedule(self, name: str) -> Seen:
        """A job at once, whatever overlap says; no tick moves."""
        schedule = self._schedule(name)
        job = self._job_of(schedule, None, self.now)
        self._insert([job])
        schedule.last_chain = job.name
        return self.tables.job_seen(job)

    def _schedule(self, name: str) -> Schedule:
        if name not in self.tables.schedules:
            raise NotFound
        return self.tables.schedules[name]

    # ---- firing (N1)

    def fire(self, tasks: Sequence[str]) -> int:
        """The jobs of ticks that have come. Each tick is counted once: it gave a job, or the one
        before was not over (skipped), or nobody was there in time (missed)."""
        batch: list[Job] = []
        due = [s for _, s in sorted(self.tables.schedules.items()) if self._is_due(s, tasks)]
        for schedule in due:
            batch += self._fired(schedule)
        self._insert(batch)
        return len(batch)

    def _is_due(self, schedule: Schedule, tasks: Sequence[str]) -> bool:
        comes = schedule.paused_at is None and schedule.next_at <= self.now
        return comes and schedule.plan.task in tasks

    def _fired(self, schedule: Schedule) -> list[Job]:
        plan = schedule.plan
        come = list(range(schedule.next_at, self.now + 1, plan.every))
        made_good = come[-max(plan.catch_up, 1) :]
        if plan.catch_up == 0 and self.now - come[-1] > ON_TIME:
            made_good = []
        schedule.missed += len(come) - len(made_good)
        ticks, behind = self._meet(schedule, made_good)
        schedule.skipped += len(made_good) - len(ticks)
        schedule.ticks += len(ticks)
        schedule.next_at = schedule.after(self.now)
        jobs: list[Job] = []
        for tick in ticks:
            job = self._job_of(schedule, tick, tick)
            if plan.overlap in ("skip", "queue") and jobs:
                behind = jobs[-1].name
            if behind is not None:
                job.after, job.given = [Edge(behind, 0, None)], 1
                job.new = replace(job.new, policy=Policy.RUN)
                behind = None
            jobs.append(job)
        if jobs:
            schedule.last_tick, schedule.last_chain = ticks[-1], jobs[-1].name
            self.seen["several ticks fired" if len(jobs) > 1 else "a tick fired"] += 1
        return jobs

    def _meet(self, schedule: Schedule, ticks: list[int]) -> tuple[list[int], str | None]:
        """N7: which ticks are left where the job before has not ended, and what they wait for."""
        overlap, last = schedule.plan.overlap, schedule.last_chain
        if overlap == "replace":
            ticks = ticks[-1:]
        chain = self.tables.chains.get(last or "")
        if not ticks or chain is None or chain.state is not ChainState.OPEN or overlap == "allow":
            return ticks, None
        tail = self.tables.tail(chain.name)
        self.seen[f"a tick meets the job before: {overlap}"] += 1
        if overlap == "replace":
            reason = f"replaced by the tick of {to_datetime(ticks[-1]).isoformat()}"
            by = f"schedule {schedule.plan.name}"
            self._end(tail.name, Outcome.CANCELLED, error=reason, by=by)
            return ticks, None
        begun = tail.position > 0 or tail.state is Live.RUNNING or tail.last is not None
        if overlap == "queue" and begun:
            return ticks, chain.name
        return [], None

    def _job_of(self, schedule: Schedule, tick: int | None, at: int) -> Job:
        plan = schedule.plan
        name = fired_name(plan.name, tick, self.now)
        arguments = f'{{"{plan.name}": 1}}'
        new = New(name, plan.task, arguments, plan.queue, at=at, expires=plan.expires)
        job = self._placed(new, {})
        job.schedule, job.tick = plan.name, tick
        return job
