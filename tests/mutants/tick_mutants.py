"""Bugs of schedules: a tick twice or never, at another time, or by somebody else's hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tests.mutants.mutant import POSTGRES, SQLITE, Edit, Mutant
from towline.operation import Query, Steps
from towline.records import NewJob
from towline.schedule import NewSchedule, ScheduleRecord
from towline.store import enqueue, schedule
from towline.store.ground import Ground
from towline.worker.duty import NEVER

CRON = "conformance/test_cron.py::{}[{{database}}: ours, blocking]"
BOTH = (SQLITE, POSTGRES)

_store_plans = schedule._store_plans


def commit_before_the_next_tick(
    store: Ground, plans: Sequence[schedule.Plan], jobs: Sequence[NewJob], now: int
) -> Steps[None]:
    yield from enqueue.enqueue(store, jobs)
    yield Query("commit", "COMMIT")()
    yield Query("begin", "BEGIN")()
    yield from _store_plans(store, plans, jobs, now)


def first_of(self: Any, wall: datetime, moment: int, until: datetime | None = None) -> int | None:
    for tick_wall in self._walls(wall):
        for tick in self._moments(tick_wall):
            return int(tick)
    return None


def due_with_room(self: Any) -> float:
    return float(self._turns.next_tick) if self._turns.room() > 0 else NEVER


def stored_is_unchanged(old: ScheduleRecord, new: NewSchedule) -> bool:
    return old.plan.digest == new.digest


TICKING = [
    Mutant(
        "next tick in a second transaction",
        "Who dies in between has stored the jobs, and the next worker stores them again.",
        "N1",
        [CRON.format("test_N1_the_jobs_of_a_tick_and_the_next_tick_are_one_commit")],
        methods={"towline.store.schedule._store_plans": commit_before_the_next_tick},
        on=BOTH,
    ),
    Mutant(
        "fire without the row's lock",
        "Two workers see the same tick.",
        "N1",
        ["races/test_ticks.py::test_N1_many_fire_at_the_same_moment[{database}]"],
        {POSTGRES: [Edit("find_due_schedules", "FOR UPDATE SKIP LOCKED", "")]},
    ),
    Mutant(
        "first answer as it is",
        "Inside the hour that comes twice the next tick is one that is over.",
        "N3",
        ["unit/test_cron.py::test_N3_a_time_that_is_asked_for_inside_the_repeated_hour_is_later"],
        methods={"towline.ticks.WallClock._first": first_of},
        on=(SQLITE,),
    ),
    Mutant(
        "no room, no fire",
        "A busy worker does not tick.",
        "N4",
        ["worker/test_schedules.py::test_N4_a_tick_is_due_whether_there_is_room_or_not"],
        methods={"towline.worker.duties.FireTicks.at": property(due_with_room)},
        on=(SQLITE,),
    ),
    Mutant(
        "resume catches up",
        "A pause is taken for an outage.",
        "N8",
        [CRON.format("test_N8_a_pause_is_no_outage")],
        {
            engine: [
                Edit(
                    "resume_schedule", "next_at = :next_at", "next_at = coalesce(next_at, :next_at)"
                )
            ]
            for engine in BOTH
        },
    ),
    Mutant(
        "a declaration overwrites an edit",
        "A deploy that changes nothing undoes what an operator has set.",
        "N9",
        [CRON.format("test_N9_an_edit_survives_a_deploy_that_declares_the_same")],
        methods={"towline.store.schedule._is_unchanged": stored_is_unchanged},
        on=BOTH,
    ),
    Mutant(
        "schedules of others are deleted",
        "A worker takes schedules of tasks that it does not know for gone.",
        "N9",
        [CRON.format("test_N9_two_apps_touch_their_own_only")],
        {
            SQLITE: [Edit("list_declared", "s.task = t.value AND s.declared", "s.declared")],
            POSTGRES: [Edit("list_declared", "s.task = t.value AND s.declared", "s.declared")],
        },
    ),
]
