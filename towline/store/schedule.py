"""Schedules: what is stored of them, and `fire`, which stores the jobs of ticks that have come.

A worker fires schedules of tasks that it knows, several workers beside one another: who has the
schedule's row decides about its ticks, and the jobs, the next tick and the counters are one commit.
Each tick that came is counted once: it got a job (ticks), the job before it was not over (skipped),
or nobody was there in time (missed).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct, field

from ..cron import ON_TIME, jitter_of
from ..errors import InvalidSetting, InvalidState, NotFound
from ..model import ChainState, Live, Outcome, Policy
from ..operation import Row, Steps
from ..records import JobRecord, NewBlocker, NewJob, WorkerRecord
from ..schedule import NewSchedule, ScheduleRecord
from ..times import to_datetime
from . import audit, control, enqueue, listing, read
from .ground import Ground, as_json, int_of

FIRE_LIMIT = 50  # schedules
PLANNED = ScheduleRecord._fields[:14]
ADVANCE = ("next_at", "last_tick", "last_chain", "ticks", "skipped", "missed", "name")


class Fired(NamedTuple):
    """What a `fire` has done, and when there is something to do again."""

    jobs: int
    postponed: bool  # another transaction holds what a tick needs: try again soon
    next_tick: int | None
    now: int


class Glance(NamedTuple):
    """What a worker sees from time to time."""

    workers: list[WorkerRecord]
    next_tick: int | None
    declared_in: list[str]  # schedules of its tasks, and limits of queues that it knows
    now: int
    gated: Sequence[str] = ()  # those of its queues that have a limit or lanes


class Declared(NamedTuple):
    """How declarations were applied."""

    taken: list[str]  # names that schedules have which were made at run time
    postponed: bool  # another transaction holds one of them: declare again soon


class ScheduleSeen(NamedTuple):
    """A schedule, and when it was read."""

    record: ScheduleRecord
    now: int


class SchedulePage(NamedTuple):
    """Some schedules, by name, and the cursor that goes on after them (None at the end)."""

    records: list[ScheduleRecord]
    cursor: str | None
    now: int


class Plan(Struct):
    """What becomes of a schedule whose time has come."""

    record: ScheduleRecord
    ticks: list[int]
    missed: int
    skipped: int = 0
    behind: int | None = None  # the chain that the first job waits for
    jobs: list[int] = field(default_factory=list)  # their places in the batch

    def skip(self, number: int) -> None:
        """Leave out the oldest."""
        self.skipped += number
        self.ticks = self.ticks[number:]


# ---- firing


def fire(store: Ground, tasks: Sequence[str], limit: int) -> Steps[Fired]:
    now = yield from store.now()
    rows = yield store.sql.find_due_schedules(tasks=as_json(tasks), now=now, limit=limit)
    jobs: list[NewJob] = []
    postponed = False
    if rows:
        # Read once they are ours: one of them may have been fired by another worker just now.
        due = yield from _records(store, [str(name) for (name,) in rows])
        due = [r for r in due if r.paused_at is None and r.next_at is not None and r.next_at <= now]
        states = yield from _chain_states(store, due)
        plans: list[Plan] = []
        for record in due:
            try:
                plan = _plan(record, now)
            except InvalidSetting:  # its time zone is not known here: another worker may know it
                postponed = True
                continue
            if plan.ticks and states.get(record.last_chain or 0) is ChainState.OPEN:
                if not (yield from _meet(store, plan)):
                    postponed = True
                    continue
            _add_jobs(plan, jobs)
            plans.append(plan)
        yield from _store_plans(store, plans, jobs, now)
    ((tick, *_),) = yield store.sql.glance(tasks=as_json(tasks), queues="[]", known="[]")
    return Fired(len(jobs), postponed, None if tick is None else int_of(tick), now)


def _plan(record: ScheduleRecord, now: int) -> Plan:
    """Which of the ticks that have come get a job: the newest, as many as are to be made good. A
    tick is missed when a newer one has come, or when it is late."""
    assert record.next_at is not None
    due = record.timing.due(record.next_at, now, max(record.catch_up, 1))
    ticks = due.ticks
    if record.catch_up == 0 and ticks and now - ticks[-1] > ON_TIME:
        ticks = []
    plan = Plan(record, ticks, due.total - len(ticks))
    if record.overlap == "replace" and len(ticks) > 1:
        plan.skip(len(ticks) - 1)  # each would be replaced by the next before it began
    return plan


def _meet(store: Ground, plan: Plan) -> Steps[bool]:
    """The job before has not ended. False: what would have to be known or changed of it is held by
    another transaction, and nothing was done."""
    record = plan.record
    chain = record.last_chain
    assert chain is not None
    if record.overlap == "skip":
        plan.skip(len(plan.ticks))
    elif record.overlap == "queue":
        if not (yield from store.share_now(chain)):
            return False
        last = yield from read.tail(store, chain)
        if last is None or last.live_state is None:
            return True
        if _has_started(last):
            plan.behind = chain
        else:
            plan.skip(len(plan.ticks))
    elif record.overlap == "replace":
        if not (yield from store.hold_end_now(chain)):
            return False
        last = yield from read.tail(store, chain)
        if last is not None and last.live_state is not None:
            reason = f"replaced by the tick of {to_datetime(plan.ticks[-1]).isoformat()}"
            by = f"schedule {record.name}"
            yield from control.end(store, last.id, Outcome.CANCELLED, None, reason, None, by)
    return True


def _has_started(last: JobRecord) -> bool:
    """Whether a chain's last job says that the chain has begun to run."""
    return last.position > 0 or last.live_state == Live.RUNNING or last.last_number is not None


def _add_jobs(plan: Plan, jobs: list[NewJob]) -> None:
    """The jobs of its ticks. Those that are made good run one after the other, unless they may run
    beside one another anyway."""
    record = plan.record
    for tick in plan.ticks:
        job = record.job(tick=tick, at=tick + jitter_of(record.name, tick, record.jitter))
        if plan.jobs and record.overlap in ("skip", "queue"):
            job.blockers, job.policy = [NewBlocker(index=plan.jobs[-1])], Policy.RUN
        elif plan.behind is not None and not plan.jobs:
            job.blockers, job.policy = [NewBlocker(chain_id=plan.behind)], Policy.RUN
        plan.jobs.append(len(jobs))
        jobs.append(job)


def _store_plans(
    store: Ground, plans: Sequence[Plan], jobs: Sequence[NewJob], now: int
) -> Steps[None]:
    stored = yield from enqueue.enqueue(store, jobs)
    rows: list[Row] = []
    for plan in plans:
        record, ticks = plan.record, plan.ticks
        rows.append((
            record.timing.after(now), ticks[-1] if ticks else None,
            stored[plan.jobs[-1]].record.chain_id if plan.jobs else None,
            len(ticks), plan.skipped, plan.missed, record.name,
        ))  # fmt: skip
    if rows:
        yield store.sql.advance_schedules.many(ADVANCE, rows)


def _chain_states(store: Ground, due: Sequence[ScheduleRecord]) -> Steps[dict[int, ChainState]]:
    """How the newest chains of schedules stand, where that matters."""
    asked = {r.last_chain for r in due if r.last_chain is not None and r.overlap != "allow"}
    found = (yield from read.chain_records(store, sorted(asked))) if asked else []
    return {chain.id: chain.state for chain in found}


# ---- what a worker sees, and what its code declares


def glance(
    store: Ground, tasks: Sequence[str], queues: Sequence[str], known: Sequence[str]
) -> Steps[Glance]:
    now = yield from store.now()
    workers = yield from listing.workers(store)
    ((tick, schedules, limits, gated),) = yield store.sql.glance(
        tasks=as_json(tasks), queues=as_json(queues), known=as_json(known)
    )
    next_tick = None if tick is None else int_of(tick)
    declared = [*json.loads(str(schedules)), *json.loads(str(limits))]
    return Glance(workers, next_tick, declared, now, json.loads(str(gated)))


def declare(
    store: Ground, schedules: Sequence[NewSchedule], tasks: Sequence[str], digest: str
) -> Steps[Declared]:
    now = yield from store.now()
    rows = yield store.sql.list_declared(tasks=as_json(tasks))
    named = {schedule.name: schedule for schedule in schedules}
    wanted = named.keys() | {str(name) for (name,) in rows}
    held = yield from store.hold_schedules(wanted, wait=False)
    stored = {record.name: record for record in (yield from _records(store, sorted(wanted)))}
    postponed = not stored.keys() <= held
    taken: list[str] = []
    made: list[Row] = []
    same: list[Row] = []
    for name, new in named.items():
        old = stored.get(name)
        if old is None:
            made.append(_row(new, new.digest, digest, new.timing.after(now)))
        elif old.declared is None:
            taken.append(name)
        elif name not in held:
            continue
        elif _is_unchanged(old, new):
            if old.declared_in != digest:
                same.append((digest, name))
        else:
            made.append(_row(new, new.digest, digest, _next_tick(old, new, now)))
    gone: list[Row] = [
        (name,)
        for name, old in stored.items()
        if name in held and name not in named and old.declared is not None
    ]
    if made:
        yield store.sql.set_schedules.many(PLANNED, made)
    if same:
        yield store.sql.declare_schedules.many(("declared_in", "name"), same)
    if gone:
        yield store.sql.delete_schedules.many(("name",), gone)
    return Declared(sorted(taken), postponed)


def _is_unchanged(old: ScheduleRecord, new: NewSchedule) -> bool:
    """Whether code says what it has said before; what is stored may be an operator's by now."""
    return old.declared == new.digest


def _next_tick(old: ScheduleRecord, new: NewSchedule, now: int) -> int | None:
    """Where a schedule goes on that is made anew: where it was, unless its times have changed."""
    return old.next_at if old.timing == new.timing else new.timing.after(now)


def _row(
    new: NewSchedule, declared: str | None, declared_in: str | None, next_at: int | None
) -> Row:
    return (
        new.name, new.job.task, new.template, *new.timing, new.jitter, new.catch_up, new.overlap,
        declared, declared_in, next_at,
    )  # fmt: skip


# ---- control


def set_schedule(store: Ground, new: NewSchedule, by: str | None) -> Steps[ScheduleSeen]:
    yield from store.hold_schedules([new.name])
    now = yield from store.now()
    found = yield from _records(store, [new.name])
    if found:
        (old,) = found
        row = _row(new, old.declared, old.declared_in, _next_tick(old, new, now))
    else:
        row = _row(new, None, None, new.timing.after(now))
    yield store.sql.set_schedules.many(PLANNED, [row])
    yield from _note(store, by, "set_schedule", new.name)
    yield from store.wake([new.job.queue])  # who looks for work sees the next tick
    return (yield from seen(store, new.name))


def pause(store: Ground, name: str, by: str | None) -> Steps[ScheduleSeen]:
    yield from _held(store, name)
    now = yield from store.now()
    yield store.sql.pause_schedule(name=name, now=now, by=audit.brief(by))
    yield from _note(store, by, "pause_schedule", name)
    return (yield from seen(store, name))


def resume(store: Ground, name: str, by: str | None) -> Steps[ScheduleSeen]:
    record = yield from _held(store, name)
    if record.paused_at is not None:
        now = yield from store.now()
        yield store.sql.resume_schedule(name=name, next_at=record.timing.after(now))
        yield from store.wake([record.job().queue])
    yield from _note(store, by, "resume_schedule", name)
    return (yield from seen(store, name))


def run(store: Ground, name: str, by: str | None, trace: str | None) -> Steps[JobRecord]:
    record = yield from _held(store, name)
    new = record.job()
    new.trace = trace
    ((job, _),) = yield from enqueue.enqueue(store, [new])
    row: Row = (record.next_at, None, job.chain_id, 0, 0, 0, name)
    yield store.sql.advance_schedules.many(ADVANCE, [row])
    yield from _note(store, by, "run_schedule", name, job.id)
    stored: JobRecord = job
    return stored


def delete(store: Ground, name: str, by: str | None) -> Steps[ScheduleRecord]:
    record = yield from _held(store, name)
    if record.declared is not None:
        raise InvalidState(
            f"schedule {name} is declared in code: pause it, or take it out of the code"
        )
    yield store.sql.delete_schedules.many(("name",), [(name,)])
    yield from _note(store, by, "delete_schedule", name)
    return record


# ---- reading


def seen(store: Ground, name: str) -> Steps[ScheduleSeen]:
    now = yield from store.now()
    return ScheduleSeen((yield from _one(store, name)), now)


def page(store: Ground, task: str | None, limit: int, cursor: str | None) -> Steps[SchedulePage]:
    now = yield from store.now()
    past = cursor or ""
    if task is None:
        rows = yield store.sql.list_schedules(cursor=past, limit=limit)
    else:
        rows = yield store.sql.list_schedules_of_task(task=task, cursor=past, limit=limit)
    found = [ScheduleRecord._make(row) for row in rows]
    return SchedulePage(found, found[-1].name if len(found) == limit else None, now)


def _records(store: Ground, names: Sequence[str]) -> Steps[list[ScheduleRecord]]:
    rows = yield store.sql.read_schedules(names=as_json(names))
    return [ScheduleRecord._make(row) for row in rows]


def _one(store: Ground, name: str) -> Steps[ScheduleRecord]:
    found = yield from _records(store, [name])
    if not found:
        raise NotFound(f"there is no schedule named {name!r}")
    return found[0]


def _held(store: Ground, name: str) -> Steps[ScheduleRecord]:
    """As it stands once it is ours to change."""
    yield from store.hold_schedules([name])
    return (yield from _one(store, name))


def _note(
    store: Ground, by: str | None, action: str, name: str, job_id: int | None = None
) -> Steps[None]:
    chosen = json.dumps({"schedule": name})
    yield from audit.note(store, by, action, job_id=job_id, chosen=chosen)
