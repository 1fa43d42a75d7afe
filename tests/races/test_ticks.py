"""N1, N8: many fire at the same moment, and somebody pauses, edits, runs or deletes just then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.database import Database
from tests.kit import MINUTE, Clock, new, rows
from tests.races.together import PATIENCE, in_threads
from tests.speed import by_speed
from towline import Cron, Towline
from towline.errors import NotFound
from towline.schedule import NewSchedule

ROUNDS = by_speed(15, 150)
CREW = 6
EVERY_MINUTE = Cron("* * * * *", overlap="allow", catch_up=1000)


def plan(name: str, **fields: Any) -> NewSchedule:
    timing, catch_up, overlap = EVERY_MINUTE.timing, EVERY_MINUTE.catch_up, EVERY_MINUTE.overlap
    return NewSchedule(name, new(**fields), timing, 0, catch_up, overlap)


def ticks_of(database: Database, name: str) -> Counter[int]:
    found = rows(database, f"SELECT tick FROM towline_job WHERE schedule = '{name}'")
    return Counter(tick for (tick,) in found if tick is not None)


class Crew:
    """Apps of their own, on one clock."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.clock = clock
        self.apps = [
            Towline(url, clock=clock, durable=False, lock_timeout=PATIENCE) for _ in range(CREW)
        ]

    def fire(self, app: Towline) -> None:
        """As workers do it: again while something is due."""
        while True:
            fired = app.runner.run(app.runner.store.fire(["a"]))
            if fired.next_tick is None or fired.next_tick > self.clock() or not fired.jobs:
                return

    def together(self, *others: Callable[[], object]) -> None:
        """All fire at the same moment, and others do something else."""
        acts: list[Callable[[], object]] = [lambda app=app: self.fire(app) for app in self.apps]  # type: ignore[misc]
        acts += others
        in_threads(len(acts), lambda index: acts[index]())

    def close(self) -> None:
        for app in self.apps:
            app.close()


@pytest.fixture
def crew(database: Database, clock: Clock) -> Crew:
    return Crew(database.url, clock)


def test_N1_many_fire_at_the_same_moment(crew: Crew, database: Database, clock: Clock) -> None:
    first = crew.apps[0]
    begin = clock()
    for n in range(5):
        first.runner.run(first.runner.store.set_schedule(plan(f"s{n}")))
    for _ in range(ROUNDS):
        clock.advance(60)
        crew.together()
    crew.fire(first)
    crew.close()
    expected = Counter(begin + n * MINUTE for n in range(1, ROUNDS + 1))
    for n in range(5):
        assert ticks_of(database, f"s{n}") == expected


def test_N8_a_tick_runs_once_or_not_at_all_whatever_is_done_at_its_moment(
    crew: Crew, database: Database, clock: Clock
) -> None:
    app = crew.apps[0]
    store = app.runner.store

    def tried(act: Callable[[], object]) -> Callable[[], object]:
        def do() -> object:
            try:
                return act()
            except NotFound:
                return None  # it was deleted just before

        return do

    acts: list[Callable[[], object]] = [
        lambda: app.runner.run(store.pause_schedule("s")),
        lambda: app.runner.run(store.resume_schedule("s")),
        lambda: app.runner.run(store.run_schedule("s")),
        lambda: app.runner.run(store.set_schedule(plan("s", label="edited"))),
        lambda: app.runner.run(store.delete_schedule("s")),
    ]
    runs = 0
    for number in range(2 * ROUNDS):
        app.runner.run(store.set_schedule(plan("s")))
        app.runner.run(store.resume_schedule("s"))
        clock.advance(60)
        crew.together(tried(acts[number % len(acts)]))
        runs += number % len(acts) == 2
    crew.close()
    ticks = ticks_of(database, "s")
    assert max(ticks.values()) == 1
    assert all(tick % MINUTE == 0 for tick in ticks)
    ((by_hand,),) = rows(database, "SELECT count(*) FROM towline_job WHERE tick IS NULL")
    assert by_hand == runs
