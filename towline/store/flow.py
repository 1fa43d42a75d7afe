"""The contract, continued: what makes jobs by itself, what belongs together, how much may run,
and a job that is changed. See `store/__init__`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..operation import Loss, Op
from ..records import BlockerRecord, JobRecord, LaneRecord, LimitRecord
from ..schedule import NewSchedule, ScheduleRecord
from . import audit, control, lease, limits, schedule, waiting
from . import group as groups
from .ground import Ground
from .group import CancelledPage, GroupRecord
from .limit import Numbers
from .limits import DeclaredLimits
from .schedule import FIRE_LIMIT, Declared, Fired, Glance, SchedulePage, ScheduleSeen


class Flow(Ground):
    """Schedules, groups of chains, limits and lanes, changes."""

    # ---- schedules

    def fire(self, tasks: Sequence[str], limit: int = FIRE_LIMIT) -> Op[Fired]:
        """Store the jobs of ticks that have come, of schedules of these tasks; a bounded number.

        The jobs of a tick, the schedule's next tick and its counters are one transaction, under the
        schedule's row: no tick is fired twice, none is lost. What another transaction holds is left
        for another time.
        """
        return Op("fire", schedule.fire, self, tasks, limit, loss=Loss.IF_ALLOWED)

    def glance(
        self, tasks: Sequence[str], queues: Sequence[str] = (), known: Sequence[str] = ()
    ) -> Op[Glance]:
        """The workers that are there; when the next tick of these tasks is; in which declarations
        their schedules were declared, and the limits of queues that the code knows; which of these
        queues have a limit or lanes. A look that does not take the writer."""
        look = Loss.WITH_WORKERS
        return Op("glance", schedule.glance, self, tasks, queues, known, reads=True, loss=look)

    def declare(
        self, schedules: Sequence[NewSchedule], tasks: Sequence[str], digest: str
    ) -> Op[Declared]:
        """Make what is stored for these tasks what code declares: a schedule that is missing is
        made; one whose declaration has changed since it was declared is changed, and keeps its
        pause and its history; one that was declared and no longer is goes. What was changed by
        hand since, and what was made at run time, is left alone."""
        return Op("declare", schedule.declare, self, schedules, tasks, digest)

    def set_schedule(self, new: NewSchedule, by: str | None = None) -> Op[ScheduleSeen]:
        """Make a schedule, or make it anew; its pause and its history stay. Its next tick changes
        only if its times do."""
        return Op("set_schedule", schedule.set_schedule, self, new, by)

    def schedule(self, name: str) -> Op[ScheduleSeen]:
        """A schedule as it stands."""
        return Op("schedule", schedule.seen, self, name, reads=True)

    def schedules(
        self, task: str | None, limit: int, cursor: str | None = None
    ) -> Op[SchedulePage]:
        """A page of schedules, by name."""
        return Op("schedules", schedule.page, self, task, limit, cursor, reads=True)

    def pause_schedule(self, name: str, by: str | None = None) -> Op[ScheduleSeen]:
        """Let no tick of it give a job until it is resumed."""
        return Op("pause_schedule", schedule.pause, self, name, by)

    def resume_schedule(self, name: str, by: str | None = None) -> Op[ScheduleSeen]:
        """Go on with the next tick after now: a pause is no outage, and is not caught up."""
        return Op("resume_schedule", schedule.resume, self, name, by)

    def run_schedule(
        self, name: str, by: str | None = None, trace: str | None = None
    ) -> Op[JobRecord]:
        """Store a job of it at once, whatever its overlap says; its ticks stay where they are."""
        return Op("run_schedule", schedule.run, self, name, by, trace)

    def delete_schedule(self, name: str, by: str | None = None) -> Op[ScheduleRecord]:
        """Delete a schedule that was made at run time; its jobs stay."""
        return Op("delete_schedule", schedule.delete, self, name, by)

    # ---- groups: a group is named by its last job, which waits for all members

    def group(self, job_id: int, created_at: int | None = None) -> Op[GroupRecord]:
        """The last job of a group, and how many of its members have ended: however many there are,
        that is one row, as long as none of them has failed the last job."""
        return Op("group", groups.group, self, job_id, created_at, reads=True)

    def members(self, job_id: int, first: int, limit: int) -> Op[list[BlockerRecord]]:
        """So many members from a position on, in declared order, each with its output or error."""
        return Op("members", groups.members, self, job_id, first, limit, reads=True)

    def bad_members(self, job_id: int, limit: int) -> Op[list[BlockerRecord]]:
        """The first members that failed or were cancelled. Those before them are looked at."""
        return Op("bad_members", groups.bad_members, self, job_id, limit, reads=True)

    def failed_members(self, job_id: int) -> Op[int]:
        """How many members have failed or were cancelled. All of them are looked at."""
        return Op("failed_members", groups.failed, self, job_id, reads=True)

    def cancel_members(
        self, job_id: int, first: int, limit: int, reason: str | None = None, by: str | None = None
    ) -> Op[CancelledPage]:
        """Cancel the open ones of so many members from a position on."""
        return Op(
            "cancel_members", groups.cancel_members, self, job_id, first, limit, reason, by
        )  # fmt: skip

    def chain_ends(self, chains: Sequence[int]) -> Op[list[BlockerRecord]]:
        """These chains, each with its state and what its last job ended with; those that do not
        exist are left out. Their positions are those of the list."""
        return Op("chain_ends", groups.chain_ends, self, chains, reads=True)

    # ---- limits and lanes

    def set_limit(
        self, queue: str, lane: str | None, numbers: Numbers, by: str | None = None
    ) -> Op[None]:
        """Say how much of a queue, of each lane of it ("*") or of one may run and begin; without a
        number, that nothing limits it.

        Takes the queue's gate: its limited jobs wait until the commit, and nothing else does.
        Nothing that runs is stopped. Lanes that were closed are looked at again.
        """
        return Op("set_limit", limits.set_limit, self, queue, lane, numbers, by)

    def declare_limits(
        self, declared: Mapping[tuple[str, str], Numbers], queues: Collection[str], digest: str
    ) -> Op[DeclaredLimits]:
        """Make what is stored what the code declares: a limit that is missing is made, one whose
        declaration has changed is changed; one that was declared for one of these queues and no
        longer is goes. What a person has changed since it was declared, or has set before it was,
        is left alone.

        Waits for nobody: where another transaction holds the gate, it is postponed.
        """
        op = limits.declare_limits
        return Op("declare_limits", op, self, declared, queues, digest, loss=Loss.WITH_WORKERS)

    def limits(self, queue: str | None = None) -> Op[list[LimitRecord]]:
        """Limits by queue and lane, with how much of each is used."""
        return Op("limits", limits.limits, self, queue, reads=True)

    def lanes(
        self, queue: str, limit: int, cursor: str | None = None
    ) -> Op[tuple[list[LaneRecord], str | None]]:
        """A page of the lanes of a queue by name: those in which something waits, or ran lately."""
        return Op("lanes", limits.lanes, self, queue, limit, cursor, reads=True)

    def resize(self, worker: int, name: str, concurrency: int) -> Op[None]:
        """Note how many attempts a worker runs at a time from now on."""
        loss = Loss.WITH_WORKERS
        return Op("resize", lease.resize, self, worker, name, concurrency, loss=loss)

    # ---- a job that is changed, or runs again

    def change(self, job_id: int, said: Mapping[str, Any], by: str | None = None) -> Op[JobRecord]:
        """Give an open job that does not run another priority, run_at, queue or label."""
        return Op("change", audit.noted, self, by, "change", waiting.change, job_id, said, by=by)

    def rerun(self, job_id: int, by: str | None = None) -> Op[JobRecord]:
        """Store a completed chain anew, with the same arguments."""
        return Op("rerun", audit.noted, self, by, "rerun", control.rerun, job_id, by=by)
