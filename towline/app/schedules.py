"""Schedules as callers hold them, declare them and set them; each method that does I/O twice.

What is declared is written by a worker when it starts; what is set is written now.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..cron import Cron, cron_of, explained
from ..errors import InvalidSetting, InvalidTask
from ..naming import check_name
from ..schedule import NewSchedule, ScheduleRecord
from ..store.schedule import SchedulePage, ScheduleSeen
from ..task import Call, Task
from ..task.options import Options
from ..task.stored import Stored
from ..ticks import zone
from ..times import MICRO, micros, to_datetime, to_datetime_or_none
from .answers import Page
from .filters import check_limit
from .handles import Job
from .reading import Reading

if TYPE_CHECKING:
    from ..operation import Op
    from ..records import JobRecord

OVERDUE = 10 * MICRO  # a tick that nobody fired for so long is of a task that no worker knows

# What a call may not say when a schedule stores it, since its ticks decide about it.
_DECIDED = ("delay", "at", "key", "after", "trace", "on")


class Schedule:
    """A schedule, as it stood when it was read."""

    __slots__ = ("_app", "_now", "_record")

    name = Stored[str]()
    task = Stored[str]()
    paused_by = Stored[str | None]()
    ticks = Stored[int]()  # that got a job
    skipped = Stored[int]()  # since the job before had not ended
    missed = Stored[int]()  # since nobody was there

    def __init__(self, app: Schedules, seen: ScheduleSeen) -> None:
        self._app = app
        self._record, self._now = seen

    # ---- control

    def pause(self, *, by: str | None = None, on: object = None) -> Schedule:
        """Let none of its ticks give a job until it is resumed."""
        return self._update(self._app.runner.run(self._ops.pause_schedule(self.name, by), on))

    async def apause(self, *, by: str | None = None, on: object = None) -> Schedule:
        op = self._ops.pause_schedule(self.name, by)
        return self._update(await self._app.runner.arun(op, on))

    def resume(self, *, by: str | None = None, on: object = None) -> Schedule:
        """Go on with the next tick after now; those of the pause are not caught up."""
        return self._update(self._app.runner.run(self._ops.resume_schedule(self.name, by), on))

    async def aresume(self, *, by: str | None = None, on: object = None) -> Schedule:
        op = self._ops.resume_schedule(self.name, by)
        return self._update(await self._app.runner.arun(op, on))

    def run(self, *, by: str | None = None, on: object = None) -> Job[Any]:
        """Store a job of it at once, whatever overlap says; its ticks stay where they are."""
        return Job(self._app, self._app.runner.run(self._run_op(by), on), True)

    async def arun(self, *, by: str | None = None, on: object = None) -> Job[Any]:
        return Job(self._app, await self._app.runner.arun(self._run_op(by), on), True)

    def _run_op(self, by: str | None) -> Op[JobRecord]:
        tracing = self._app.tracing
        trace = None if tracing is None else tracing.here()
        op: Op[JobRecord] = self._ops.run_schedule(self.name, by, trace)
        return op

    def delete(self, *, by: str | None = None, on: object = None) -> None:
        """Delete it; its jobs stay. One that is declared in code can only be paused."""
        self._app.runner.run(self._ops.delete_schedule(self.name, by), on)

    async def adelete(self, *, by: str | None = None, on: object = None) -> None:
        await self._app.runner.arun(self._ops.delete_schedule(self.name, by), on)

    def refresh(self, *, on: object = None) -> Schedule:
        """Read it anew; NotFound when it was deleted."""
        return self._update(self._app.runner.run(self._ops.schedule(self.name), on))

    async def arefresh(self, *, on: object = None) -> Schedule:
        return self._update(await self._app.runner.arun(self._ops.schedule(self.name), on))

    # ---- what it says

    @property
    def record(self) -> ScheduleRecord:
        return self._record

    @property
    def cron(self) -> Cron:
        """When it ticks."""
        record = self._record
        return Cron(
            record.cron,
            every=None if record.every is None else record.every / MICRO,
            tz=record.tz,
            start=to_datetime_or_none(record.start_at),
            end=to_datetime_or_none(record.end_at),
            jitter=record.jitter / MICRO,
            catch_up=record.catch_up,
            overlap=record.overlap,  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        )

    @property
    def arguments(self) -> str:
        """Of its jobs, as JSON text."""
        return self._record.job().arguments

    @property
    def queue(self) -> str:
        """Of its jobs."""
        return self._record.job().queue

    @property
    def declared(self) -> bool:
        """Whether code declares it; else it was made at run time."""
        return self._record.declared is not None

    @property
    def edited(self) -> bool:
        """Whether it was changed since code has declared it."""
        record = self._record
        return record.declared is not None and record.declared != record.plan.digest

    @property
    def paused(self) -> bool:
        return self._record.paused_at is not None

    @property
    def paused_at(self) -> datetime | None:
        return to_datetime_or_none(self._record.paused_at)

    @property
    def next_at(self) -> datetime | None:
        """The next tick; None while it is paused, and once there is none any more."""
        return None if self.paused else to_datetime_or_none(self._record.next_at)

    @property
    def last_tick(self) -> datetime | None:
        """The newest tick that got a job."""
        return to_datetime_or_none(self._record.last_tick)

    @property
    def last_job(self) -> int | None:
        """The newest job, of a tick or of `run()`: the first of its chain."""
        return self._record.last_chain

    @property
    def reason(self) -> str | None:
        """Why it does not tick, where that is known."""
        record = self._record
        if record.paused_at is not None:
            return "paused" if record.paused_by is None else f"paused by {record.paused_by}"
        if record.next_at is None:
            return "it has ended: there is no tick any more"
        if record.next_at + OVERDUE < self._now:
            return f"no running worker knows task {record.task}"
        return None

    def explain(self) -> str:
        """When it ticks, in words."""
        return explained(self._record.timing)

    def upcoming(self, number: int = 5) -> list[datetime]:
        """The next ticks, in the schedule's time zone, as if it were not paused; none where that
        zone is not known."""
        found: list[datetime] = []
        timing, moment = self._record.timing, self._now
        try:
            while len(found) < number and (tick := timing.after(moment)) is not None:
                found.append(to_datetime(tick).astimezone(zone(timing.tz)))
                moment = tick
        except InvalidSetting:
            return []
        return found

    def __repr__(self) -> str:
        return f"<schedule {self.name} of {self.task}: {self.explain()}>"

    # ---- inside

    @property
    def _ops(self) -> Any:
        return self._app.runner.store

    def _update(self, seen: ScheduleSeen) -> Schedule:
        self._record, self._now = seen
        return self


class Schedules(Reading):
    """Jobs that are stored again and again, at times that a `Cron` says."""

    def __init__(self) -> None:
        super().__init__()
        self._declared: dict[str, tuple[Call[Any], Cron]] = {}

    def declare_schedule(self, name: str, call: Call[Any], cron: Cron | str) -> None:
        """Say that there is to be such a schedule: a worker writes it when it starts, changes it
        when this has changed, and deletes it when this is gone from the code."""
        check_name(name, "the name of a schedule")
        self.refuse_declared_twice(name)
        self._declared[name] = call, _checked(call, cron)

    def set_schedule(
        self,
        name: str,
        call: Call[Any],
        cron: Cron | str,
        *,
        by: str | None = None,
        on: object = None,
    ) -> Schedule:
        """Make a schedule now, or make it anew: its pause and its history stay. On the caller's
        connection it ticks from the commit on."""
        return Schedule(self, self.runner.run(self._set_schedule(name, call, cron, by), on))

    async def aset_schedule(
        self,
        name: str,
        call: Call[Any],
        cron: Cron | str,
        *,
        by: str | None = None,
        on: object = None,
    ) -> Schedule:
        return Schedule(self, await self.runner.arun(self._set_schedule(name, call, cron, by), on))

    def schedule(self, name: str, *, on: object = None) -> Schedule:
        """A schedule by its name; NotFound when there is none."""
        return Schedule(self, self.runner.run(self._store.schedule(_name_of(name)), on))

    async def aschedule(self, name: str, *, on: object = None) -> Schedule:
        return Schedule(self, await self.runner.arun(self._store.schedule(_name_of(name)), on))

    def schedules(
        self,
        task: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        on: object = None,
    ) -> Page[Schedule]:
        """A page of schedules by name, of all tasks or of one; `cursor` goes on after it."""
        return self._listed(self.runner.run(self._schedules(task, limit, cursor), on))

    async def aschedules(
        self,
        task: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
        *,
        on: object = None,
    ) -> Page[Schedule]:
        return self._listed(await self.runner.arun(self._schedules(task, limit, cursor), on))

    # ---- what a worker asks for

    def declared_schedules(self) -> list[NewSchedule]:
        """Those that the code declares by now, checked."""
        found = [
            new_schedule(name, task.call(), task.cron)
            for name, task in self.registry.items()
            if task.cron is not None
        ]
        for name, (call, cron) in self._declared.items():
            if self.registry.get(call.task.name) is not call.task:
                raise InvalidTask(f"schedule {name} is of task {call.task.name} of another app")
            found.append(new_schedule(name, call, cron))
        return found

    def refuse_declared_twice(self, name: str) -> None:
        task: Task[..., Any] | None = self.registry.get(name)
        if name in self._declared or (task is not None and task.cron is not None):
            raise InvalidSetting(f"there is a schedule named {name} already; give it another name")

    # ---- shared by both twins

    def _set_schedule(
        self, name: str, call: Call[Any], cron: Cron | str, by: str | None
    ) -> Op[ScheduleSeen]:
        check_name(name, "the name of a schedule")
        checked = _checked(call, cron)
        if self.registry.get(call.task.name) is not call.task:
            raise InvalidTask(f"task {call.task.name} belongs to another app; set it there")
        return self._store.set_schedule(new_schedule(name, call, checked), by)

    def _schedules(self, task: str | None, limit: int, cursor: str | None) -> Op[SchedulePage]:
        check_name(task, "task")
        check_name(cursor, "cursor")
        return self._store.schedules(task, check_limit(limit), cursor)

    def _listed(self, found: SchedulePage) -> Page[Schedule]:
        listed = [Schedule(self, ScheduleSeen(record, found.now)) for record in found.records]
        return Page(listed, found.cursor)


def new_schedule(name: str, call: Call[Any], cron: Cron) -> NewSchedule:
    jitter = micros(cron.jitter)
    job = call.new_job(())
    return NewSchedule(name, job, cron.timing, jitter, cron.catch_up, cron.overlap)


def _name_of(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidSetting(f"a schedule has a name, not {name!r}")
    return name


def _checked(call: object, given: Cron | str) -> Cron:
    """When a call is stored whose jobs a tick can store, and that can start."""
    if not isinstance(call, Call):
        raise InvalidSetting(
            f"a schedule takes a call such as report.call('eu'), not {type(call).__name__}"
        )
    plain = Options()
    for name in _DECIDED:
        if getattr(call.options, name) != getattr(plain, name):
            raise InvalidSetting(
                f"the call of a schedule takes no {name}=: its ticks say when it runs, and "
                "overlap= what happens beside a job that has not ended"
            )
    if isinstance(call.options.expires, datetime):
        raise InvalidSetting(
            "the call of a schedule takes expires= as a duration: so long after its tick a job is "
            "not started"
        )
    cron = cron_of(given)
    if call.options.expires is not None and micros(call.options.expires) <= micros(cron.jitter):
        raise InvalidSetting(
            "some jobs of this schedule would never start: expires= is not longer than jitter="
        )
    return cron
