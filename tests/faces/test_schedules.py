"""Schedules as an application declares, sets and holds them; what is refused, and with which words.

On both engines: the clock is moved by the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests import database as databases
from tests.kit import Clock
from towline import INJECTED, Context, Cron, NotFound, Tasks, Towline
from towline.app.schedules import Schedule
from towline.errors import InvalidArguments, InvalidSetting, InvalidState, InvalidTask
from towline.operation import Op, Query, Steps
from towline.testing import drain
from towline.times import to_datetime


@pytest.fixture(params=[databases.SQLITE, databases.newest()])
def app(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Towline]:
    with databases.opened(request.param, tmp_path) as database:
        app = Towline(database.url, clock=clock)
        yield app
        app.close()


def add_report(app: Towline) -> Any:
    @app.task(queue="reports", priority=2)
    def report(region: str = "all", ctx: Context = INJECTED) -> str | None:
        return f"{region} at {ctx.tick.isoformat()}" if ctx.tick else None

    return report


def test_a_schedule_is_set_read_and_listed(app: Towline, clock: Clock) -> None:
    report = add_report(app)
    cron = Cron("30 7 * * mon-fri", tz="Europe/Berlin", jitter=60, catch_up=3, overlap="queue")
    made = app.set_schedule("eu", report.call("eu"), cron)
    found = app.schedule("eu")
    assert isinstance(found, Schedule)
    assert (found.name, found.task, found.queue, found.cron) == ("eu", "report", "reports", cron)
    assert (found.declared, found.edited, found.paused, found.reason) == (False, False, False, None)
    assert (found.ticks, found.skipped, found.missed) == (0, 0, 0)
    assert (found.last_tick, found.last_job, found.paused_at) == (None, None, None)
    assert found.next_at == made.next_at == cron.after(to_datetime(clock()))
    assert found.arguments == '{"region":"eu"}'
    assert [tick.isoformat() for tick in found.upcoming(2)] == [
        "2027-01-18T07:30:00+01:00", "2027-01-19T07:30:00+01:00",
    ]  # fmt: skip
    text = "At 07:30 on Monday through Friday, Europe/Berlin"
    assert repr(found) == f"<schedule eu of report: {text}>"
    app.set_schedule("us", report.using(queue="far").call("us"), "@hourly")
    page = app.schedules(limit=1)
    assert ([each.name for each in page], page.cursor) == (["eu"], "eu")
    assert [each.name for each in app.schedules(cursor=page.cursor)] == ["us"]
    assert [each.queue for each in app.schedules(task="report")] == ["reports", "far"]
    assert list(app.schedules(task="other")) == []


def test_a_job_knows_its_schedule_and_its_tick(app: Towline, clock: Clock) -> None:
    report = add_report(app)
    schedule = app.set_schedule("eu", report.call("eu"), Cron(every=60))
    tick = schedule.next_at
    assert tick is not None
    clock.advance(75)
    assert drain(app) == 1
    (job,) = app.jobs(schedule="eu")
    assert (job.schedule, job.tick, job.queue, job.priority) == ("eu", tick, "reports", 2)
    assert job.output == f"eu at {tick.isoformat()}"
    schedule.refresh()
    assert (schedule.last_job, schedule.last_tick, schedule.ticks) == (job.id, tick, 1)
    run = schedule.run(by="ann")
    assert drain(app) == 1
    assert (run.created, run.refresh().output, run.tick) == (True, None, None)
    assert [line.action for line in app.audit(job=run.id)] == ["run_schedule"]
    assert report.enqueue().schedule is None


def test_control_of_a_schedule(app: Towline, clock: Clock) -> None:
    report = add_report(app)
    schedule = app.set_schedule("eu", report.call("eu"), Cron(every=60), by="ann")
    schedule.pause(by="ann")
    assert (schedule.paused, schedule.paused_by, schedule.next_at) == (True, "ann", None)
    assert schedule.reason == "paused by ann"
    assert schedule.paused_at == to_datetime(clock())
    clock.advance(600)
    assert drain(app) == 0
    schedule.resume(by="bob")
    assert schedule.reason is None
    assert schedule.missed == 0
    schedule.delete(by="ann")
    with pytest.raises(NotFound, match="there is no schedule named 'eu'"):
        schedule.refresh()
    lines = [(line.by, line.action, line.chosen) for line in app.audit()]
    assert lines[::-1] == [
        ("ann", "set_schedule", {"schedule": "eu"}),
        ("ann", "pause_schedule", {"schedule": "eu"}),
        ("bob", "resume_schedule", {"schedule": "eu"}),
        ("ann", "delete_schedule", {"schedule": "eu"}),
    ]


def test_the_awaiting_twins_do_the_same(app: Towline) -> None:
    report = add_report(app)

    async def script() -> None:
        schedule = await app.aset_schedule("eu", report.call("eu"), "@daily", by="ann")
        assert (await app.aschedule("eu")).name == "eu"
        assert [each.name for each in await app.aschedules()] == ["eu"]
        assert (await schedule.apause(by="x")).paused
        assert not (await schedule.aresume()).paused
        assert (await schedule.arun()).schedule == "eu"
        assert (await schedule.arefresh()).last_job is not None
        await schedule.adelete()

    asyncio.run(script())
    assert list(app.schedules()) == []


def test_N10_what_nobody_fires_says_why(app: Towline, clock: Clock) -> None:
    report = add_report(app)
    schedule = app.set_schedule("eu", report.call("eu"), Cron(every=60))
    clock.advance(120)
    assert schedule.refresh().reason == "no running worker knows task report"


def test_N12_one_that_has_ended_stays_and_says_so(app: Towline, clock: Clock) -> None:
    report = add_report(app)
    end = to_datetime(clock()) - timedelta(days=1)
    schedule = app.set_schedule("eu", report.call("eu"), Cron(every=60, end=end))
    assert (schedule.next_at, schedule.upcoming()) == (None, [])
    assert schedule.reason == "it has ended: there is no tick any more"


# ---- declared


def test_N9_what_is_declared_is_stored_when_work_begins(app: Towline, clock: Clock) -> None:
    ran: list[str] = []

    @app.task(cron=Cron(every=60, tz="Europe/Berlin"))
    def nightly(ctx: Context = INJECTED) -> None:
        ran.append("nightly")

    @app.task
    def report(region: str) -> None:
        ran.append(region)

    app.declare_schedule("eu-report", report.using(queue="mail").call("eu"), "* * * * *")
    assert list(app.schedules()) == []
    assert drain(app) == 0
    assert [(each.name, each.declared) for each in app.schedules()] == [
        ("eu-report", True),
        ("nightly", True),
    ]
    clock.advance(60)
    assert drain(app) == 2
    assert sorted(ran) == ["eu", "nightly"]
    with pytest.raises(InvalidState, match="declared in code: pause it, or take it out of the"):
        app.schedule("nightly").delete()
    app.set_schedule("nightly", nightly.call(), "@hourly")
    edited = app.schedule("nightly")
    assert (edited.declared, edited.edited, edited.ticks) == (True, True, 1)
    drain(app)
    assert app.schedule("nightly").edited


def test_a_set_of_tasks_brings_its_schedules_along(app: Towline) -> None:
    tasks = Tasks()

    @tasks.task(cron="@daily", name="clean")
    def clean() -> None: ...

    app.include(tasks, "shop.")
    drain(app)
    assert [(each.name, each.task) for each in app.schedules()] == [("shop.clean", "shop.clean")]
    with pytest.raises(InvalidSetting, match="there is a schedule named shop\\.clean"):
        app.declare_schedule("shop.clean", clean.call(), "@daily")


def test_the_digest_is_of_all_that_is_declared(app: Towline) -> None:
    empty = app.declarations().digest

    @app.task
    def a() -> None: ...

    known = app.declarations().digest
    app.declare_schedule("one", a.call(), "@daily")
    one = app.declarations()
    assert len({empty, known, one.digest}) == 3
    assert [new.name for new in one.schedules] == ["one"]
    assert app.declarations() == one


# ---- refused


def refused(app: Towline) -> dict[str, tuple[Callable[[], object], type[Exception], str]]:
    report = add_report(app)
    other = Towline("sqlite:///other.db")

    @other.task
    def strange() -> None: ...

    def nightly(day: int, *, of: str) -> None: ...

    def twice() -> None:
        app.declare_schedule("x", report.call(), "@daily")
        app.declare_schedule("x", report.call(), "@daily")

    at = datetime.now(UTC)
    takes_no = "the call of a schedule takes no {}=: its ticks say when it runs"
    return {
        "arguments": (
            lambda: app.task(cron="@daily")(nightly),
            InvalidSetting,
            r"nightly\(day, of\) needs arguments: "
            r"app.declare_schedule\('…', nightly.call\(…\), …\)",
        ),
        "cron": (lambda: app.task(cron="* *")(add_report), InvalidSetting, "has five fields"),
        "no cron": (
            lambda: app.set_schedule("x", report.call(), 60),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
            InvalidSetting,
            "cron= is a Cron or an expression",
        ),
        "a task": (
            lambda: app.set_schedule("x", report, "@daily"),
            InvalidSetting,
            r"a schedule takes a call such as report.call\('eu'\), not Task",
        ),
        "a task that is declared": (
            lambda: app.declare_schedule("x", report, "@daily"),
            InvalidSetting,
            "a schedule takes a call",
        ),
        "wrong arguments": (
            lambda: app.set_schedule("x", report.call(1, 2, 3), "@daily"),
            InvalidArguments, "report",
        ),
        "delay": (
            lambda: app.set_schedule("x", report.using(delay=1).call(), "@daily"),
            InvalidSetting, takes_no.format("delay"),
        ),
        "at": (
            lambda: app.set_schedule("x", report.using(at=at).call(), "@daily"),
            InvalidSetting, takes_no.format("at"),
        ),
        "key": (
            lambda: app.declare_schedule("x", report.using(key="k").call(), "@daily"),
            InvalidSetting, takes_no.format("key"),
        ),
        "after": (
            lambda: app.declare_schedule("x", report.using(after=[1]).call(), "@daily"),
            InvalidSetting, takes_no.format("after"),
        ),
        "expires": (
            lambda: app.set_schedule(
                "x", report.using(expires=60).call(), Cron("@daily", jitter=60)
            ),
            InvalidSetting, "never start: expires= is not longer than jitter=",
        ),
        "another app": (
            lambda: app.set_schedule("x", strange.call(), "@daily"),
            InvalidTask, "task strange belongs to another app; set it there",
        ),
        "name": (
            lambda: app.set_schedule("", report.call(), "@daily"),
            InvalidSetting, "the name of a schedule '' must be 1 to 200 printable",
        ),
        "no name": (lambda: app.schedule(7), InvalidSetting, "has a name"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        "twice": (twice, InvalidSetting, "there is a schedule named x already; give it another"),
        "limit": (lambda: app.schedules(limit=0), InvalidSetting, "limit is from 1 to 10000"),
    }  # fmt: skip


CASES = (
    "arguments", "cron", "no cron", "a task", "a task that is declared", "wrong arguments", "delay",
    "at", "key", "after", "expires", "another app", "name", "no name", "twice", "limit",
)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_be_scheduled_is_refused(case: str) -> None:
    app = Towline("sqlite:////nowhere/at/all.db")  # the database is not touched
    cases = refused(app)
    assert [*cases] == [*CASES]
    act, error, words = cases[case]
    with pytest.raises(error, match=words):
        act()


def test_a_call_of_another_app_is_refused_before_work_begins(app: Towline) -> None:
    other = Towline("sqlite:///other.db")

    @other.task
    def strange() -> None: ...

    app.declare_schedule("x", strange.call(), "@daily")
    with pytest.raises(InvalidTask, match="schedule x is of task strange of another app"):
        app.worker().start()


def test_a_zone_that_is_not_known_here_holds_up_no_other(app: Towline, clock: Clock) -> None:
    report = add_report(app)
    app.set_schedule("far", report.call("far"), "* * * * *")
    app.set_schedule("near", report.call("near"), "* * * * *")
    text = "UPDATE towline_schedule SET tz = 'Mars/Base' WHERE name = 'far'"

    def steps() -> Steps[None]:
        yield Query("strange", text)()

    app.runner.run(Op("by hand", steps))
    clock.advance(60)
    fired = app.runner.run(app.runner.store.fire(["report"]))
    assert (fired.jobs, fired.postponed) == (1, True)
    assert [job.schedule for job in app.jobs()] == ["near"]
