"""A worker fires the ticks of tasks it knows, busy or not, and writes what its code declares."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import Gate
from towline import INJECTED, Context, Cron, Towline
from towline.app.declarations import Declarations
from towline.operation import Op, Query, Steps
from towline.store.schedule import Glance
from towline.worker import upkeep
from towline.worker.declare import Declare
from towline.worker.duties import COURTESY, FireTicks

EVERY_SECOND = Cron(every=1, overlap="allow")


@pytest.mark.each_engine
def test_a_worker_fires_and_its_handler_knows_the_tick(app: Towline) -> None:
    seen: list[datetime | None] = []

    @app.task(cron=EVERY_SECOND)
    def beat(ctx: Context = INJECTED) -> None:
        seen.append(ctx.tick)

    with app.worker():
        until(lambda: len(seen) >= 3, "three ticks")
    first, second, third = seen[:3]
    assert first is not None
    assert second is not None
    assert third is not None
    assert (second - first).total_seconds() == (third - second).total_seconds() == 1
    schedule = app.schedule("beat")
    assert (schedule.declared, schedule.skipped) == (True, 0)
    assert [job.tick for job in app.jobs(schedule="beat", newest=False)][:3] == seen[:3]


@pytest.mark.each_engine
def test_N4_ticks_fire_while_every_slot_is_busy(app: Towline) -> None:
    gate = Gate()

    @app.task
    def slow() -> None:
        gate.enter()

    @app.task(cron=EVERY_SECOND)
    def beat() -> None: ...

    with app.worker(concurrency=1):
        slow.enqueue()
        gate.wait_inside()
        began = len(app.jobs(schedule="beat"))
        until(lambda: len(app.jobs(schedule="beat")) >= began + 2, "two ticks")
        assert {job.state for job in app.jobs(schedule="beat")} <= {"pending", "completed"}
        gate.open()
    assert app.schedule("beat").missed == 0


def test_N4_a_tick_is_due_whether_there_is_room_or_not() -> None:
    class Busy:
        next_tick = 5.0
        stopping = False
        lookout = SimpleNamespace(rank=3)

        def room(self) -> int:
            return 0

    turns: Any = Busy()
    assert FireTicks(turns).at == 5.0 + 3 * COURTESY


def test_S3_a_schedule_that_is_set_meanwhile_is_seen(app: Towline) -> None:
    @app.task
    def beat() -> None: ...

    with app.worker():
        app.set_schedule("beat", beat.call(), EVERY_SECOND)
        until(lambda: app.jobs(schedule="beat", state="completed"), "a tick")


def test_N10_a_worker_leaves_tasks_alone_that_it_does_not_know(
    app: Towline, make_app: Callable[..., Towline]
) -> None:
    @app.task
    def known() -> None: ...

    @app.task
    def strange() -> None: ...

    app.set_schedule("known", known.call(), EVERY_SECOND)
    app.set_schedule("strange", strange.call(), EVERY_SECOND)
    other = make_app()
    other.task(name="known")(lambda: None)
    with other.worker():
        until(lambda: len(other.jobs(schedule="known")) >= 2, "ticks")
    assert list(app.jobs(schedule="strange")) == []


# ---- declarations


def deployed(make_app: Callable[..., Towline], *names: str, **cron: Cron) -> Towline:
    """A release of an app that knows these tasks, and declares these schedules of task a."""
    app = make_app()

    @app.task(name="a")
    def a() -> None: ...

    for name in names:
        app.task(name=name)(lambda: None)
    for name, when in cron.items():
        app.declare_schedule(name, a.call(), when)
    return app


def stored(app: Towline) -> dict[str, str]:
    return {each.name: each.cron.explain() for each in app.schedules()}


DAILY, HOURLY = Cron("@daily"), Cron("@hourly")
OLD = {"kept": "At 00:00 every day, UTC", "old": "At 00:00 every day, UTC"}
NEW = {
    "kept": "At the start of every hour, UTC",
    "new": "At 00:00 every day, UTC",
}


@pytest.fixture
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "DEAD_CHECK", 0.05)


@pytest.mark.each_engine
@pytest.mark.usefixtures("_quick_looks")
def test_N9_an_old_worker_that_restarts_last_does_not_win_for_ever(
    make_app: Callable[..., Towline],
) -> None:
    before = deployed(make_app, kept=DAILY, old=DAILY)
    after = deployed(make_app, kept=HOURLY, new=DAILY)
    with after.worker():
        until(lambda: stored(after) == NEW, "the new ones")
        with before.worker():
            until(lambda: stored(after) == OLD, "the old ones")
        until(lambda: stored(after) == NEW, "the new ones again")


@pytest.mark.usefixtures("_quick_looks")
def test_N9_nor_does_one_that_declared_nothing(make_app: Callable[..., Towline]) -> None:
    before = deployed(make_app)
    after = deployed(make_app, kept=HOURLY, new=DAILY)
    with after.worker():
        until(lambda: stored(after) == NEW, "the new ones")
        with before.worker():
            until(lambda: not stored(after), "none")
        until(lambda: stored(after) == NEW, "the new ones again")


@pytest.mark.usefixtures("_quick_looks")
def test_N9_two_apps_on_one_database_touch_their_own_only(
    make_app: Callable[..., Towline],
) -> None:
    one = deployed(make_app, kept=HOURLY, new=DAILY)
    other = make_app()

    @other.task(cron=DAILY)
    def theirs() -> None: ...

    both = NEW | {"theirs": "At 00:00 every day, UTC"}
    with one.worker(), other.worker():
        until(lambda: stored(one) == both, "all of them")
    with other.worker():
        until(lambda: len(other.workers()) == 1, "it runs")
    with one.worker():
        until(lambda: one.workers(), "it runs")
    assert stored(one) == both


def test_N9_a_schedule_made_at_run_time_keeps_its_name(
    app: Towline, make_app: Callable[..., Towline], trouble: list[logging.LogRecord]
) -> None:
    made = deployed(make_app)
    made.set_schedule("kept", made.registry["a"].call(), DAILY)
    declaring = deployed(make_app, kept=HOURLY)
    with declaring.worker():
        until(lambda: trouble, "a warning")
    assert "leaves schedule kept as it was set at run time" in trouble[0].getMessage()
    assert stored(app) == {"kept": "At 00:00 every day, UTC"}


class Seen:
    """Turns, as far as a Declare looks at them."""

    def __init__(self, worker: int, digest: str, *schedules: str) -> None:
        self.worker = worker
        self.declarations = Declarations(digest, list[Any](schedules), {}, [])
        self.settings = SimpleNamespace(drain=False)


def worker_row(id: int, declares: str | None, started_at: int) -> Any:
    from towline.records import WorkerRecord

    return WorkerRecord(
        id, f"w{id}", "h", 1, None, "0", "[]", 1, started_at, started_at, 99, declares
    )


MINE = worker_row(1, "mine", 5)


@pytest.mark.parametrize(
    ("first", "own", "others", "stored_in", "wanted"),
    [
        (True, True, [], [], True),
        (True, False, [], [], False),
        (True, False, [], ["old"], True),
        (False, True, [], ["mine"], False),
        (False, True, [], ["old"], True),
        (False, True, [worker_row(2, "old", 4)], ["old"], False),
        (False, True, [worker_row(2, "old", 4)], ["old", "older"], True),
        (False, True, [worker_row(2, "mine", 9)], ["mine"], False),
        (False, True, [], [], True),
        (False, True, [worker_row(2, "other", 9)], [], False),
        (False, True, [worker_row(2, "other", 4)], [], True),
        (False, False, [worker_row(2, None, 9)], [], False),
    ],
)
def test_N9_when_declarations_are_written(
    first: bool, own: bool, others: list[Any], stored_in: list[str], wanted: bool
) -> None:
    turns: Any = Seen(1, "mine", *(["s"] if own else []))
    declare = Declare(turns)
    declare._first = first
    declare.glanced(Glance([MINE, *others], None, stored_in, 10))
    assert (declare.at == 0.0) is wanted


# ---- what another transaction holds


def test_what_somebody_holds_is_fired_when_it_is_free(
    app: Towline, database: Database, postgres: Database
) -> None:
    """The other schedules tick meanwhile."""
    import psycopg

    @app.task
    def beat() -> None: ...

    for name in ("held", "free"):
        app.set_schedule(name, beat.call(), EVERY_SECOND)
    with psycopg.connect(database.url) as connection:
        connection.execute("SELECT 1 FROM towline_schedule WHERE name = 'held' FOR UPDATE")
        with app.worker():
            until(lambda: len(app.jobs(schedule="free")) >= 2, "ticks of the other")
            assert list(app.jobs(schedule="held")) == []
            connection.commit()
            until(lambda: app.jobs(schedule="held"), "ticks of the one that was held")


@pytest.mark.parametrize("overlap", ["queue", "replace"])
def test_N6_a_tick_waits_for_a_chain_that_somebody_holds_and_holds_up_nobody(
    app: Towline, database: Database, postgres: Database, overlap: Any
) -> None:
    import psycopg

    @app.task
    def beat() -> None: ...

    schedule = app.set_schedule("held", beat.call(), Cron(every=1, overlap=overlap))
    app.set_schedule("free", beat.call(), EVERY_SECOND)
    before = schedule.run()
    due = "UPDATE towline_schedule SET next_at = 1000000"

    def steps() -> Steps[None]:
        yield Query("due", due)()

    store = app.runner.store
    with psycopg.connect(database.url) as connection:
        connection.execute(
            f"SELECT 1 FROM towline_chain WHERE id = {before.id} FOR UPDATE".encode()
        )
        app.runner.run(Op("by hand", steps))
        fired = app.runner.run(store.fire(["beat"]))
        assert (fired.jobs, fired.postponed) == (1, True)
        connection.rollback()
    fired = app.runner.run(store.fire(["beat"]))
    assert not fired.postponed
    assert before.refresh().state == ("pending" if overlap == "queue" else "cancelled")


def test_N9_N10_a_worker_that_drains_declares_and_fires_what_has_come(app: Towline) -> None:
    ran: list[int] = []

    @app.task(cron=Cron(every=3600))
    def hourly() -> None:
        ran.append(1)

    app.worker(drain=True).run()
    assert app.schedule("hourly").next_at is not None
    assert ran == []
    app.set_schedule("soon", hourly.call(), Cron(every=1))
    until(lambda: app.now() >= (app.schedule("soon").refresh().next_at or app.now()), "its tick")
    app.worker(drain=True).run()
    assert ran
