"""schedules, schedule: for people, and with --json for programs; jobs --schedule; the doctor."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.shop import APP, Shop
from tests.cli.test_completion import completed
from tests.cli.test_doctor import findings
from tests.kit import new
from towline import Cron, Towline
from towline.operation import Op, Query, Steps
from towline.schedule import NewSchedule

BERLIN = Cron("30 7 * * mon-fri", tz="Europe/Berlin", jitter=5, catch_up=3, overlap="queue")


def put(shop: Shop, name: str, cron: Cron, task: str = "add", **fields: Any) -> None:
    job = new(task, arguments='{"a": 1, "b": 2, "password": "x"}', **fields)
    plan = NewSchedule(name, job, cron.timing, 5_000_000, cron.catch_up, cron.overlap)
    shop.app.runner.run(shop.app.runner.store.set_schedule(plan))


def change(app: Towline, text: str) -> None:
    def steps() -> Steps[None]:
        yield Query("by_hand", text)()

    app.runner.run(Op("by hand", steps))


@pytest.mark.each_engine
def test_schedules_are_listed(any_shop: Shop) -> None:
    shop = any_shop
    assert shop.text("schedules", APP) == "no schedules\n"
    put(shop, "eu", BERLIN)
    put(shop, "fetching", Cron(every=60), "fetch", queue="mail")
    found = shop.data("schedules", APP)
    assert found["cursor"] is None
    eu, fetching = found["schedules"]
    assert (eu["name"], eu["task"], eu["cron"], eu["every"]) == (
        "eu",
        "add",
        BERLIN.expression,
        None,
    )
    assert (eu["tz"], eu["overlap"], eu["catch_up"], eu["jitter"]) == (
        "Europe/Berlin",
        "queue",
        3,
        5,
    )
    assert eu["arguments"] == {"a": 1, "b": 2, "password": "***"}
    assert (eu["declared"], eu["edited"], eu["paused"], eu["reason"]) == (False, False, False, None)
    assert len(eu["upcoming"]) == 5
    assert eu["upcoming"][0].endswith(("T07:30:00+01:00", "T07:30:00+02:00"))
    assert (fetching["every"], fetching["queue"]) == (60, "mail")
    text = shop.text("schedules", APP)
    assert "At 07:30 on Monday through Friday, Europe/Berlin" in text
    assert "Every 1 min" in text
    (only,) = shop.data("schedules", APP, "--task", "fetch")["schedules"]
    assert only["name"] == "fetching"
    assert "there may be more: --cursor eu" in shop.text("schedules", APP, "--limit", "1")
    (next_one,) = shop.data("schedules", APP, "--cursor", "eu")["schedules"]
    assert next_one["name"] == "fetching"


def test_one_schedule_with_its_next_ticks_in_both_zones(shop: Shop) -> None:
    put(shop, "eu", BERLIN)
    text = shop.text("schedule", APP, "eu")
    assert "next ticks" in text
    assert text.count("07:30:00 CE") == 5
    for word in ("Europe/Berlin", "here", "up to 5 s", "at run time", "0 run, 0 skipped, 0 missed"):
        assert word in text
    assert shop.data("schedule", APP, "eu")["name"] == "eu"


@pytest.mark.each_engine
def test_what_is_done_to_a_schedule(any_shop: Shop) -> None:
    shop = any_shop
    put(shop, "eu", BERLIN)
    assert shop.text("schedule", APP, "eu", "pause") == "schedule eu is paused\n"
    assert "@" in shop.data("schedule", APP, "eu")["paused_by"]
    assert "paused by" in shop.text("schedule", APP, "eu")
    assert shop.data("schedule", APP, "eu", "resume")["paused"] is False
    assert shop.text("schedule", APP, "eu", "resume") == "schedule eu was not paused\n"
    (job,) = shop.data("schedule", APP, "eu", "run")["jobs"]
    assert (job["schedule"], job["tick"], job["task"]) == ("eu", None, "add")
    assert "add" in shop.text("schedule", APP, "eu", "run")
    assert len(shop.data("jobs", APP, "--schedule", "eu")["jobs"]) == 2
    assert shop.data("jobs", APP, "--schedule", "other")["jobs"] == []
    assert "newest jobs" in shop.text("schedule", APP, "eu")
    shown = shop.text("job", APP, str(job["id"]))
    assert "eu" in shown
    assert "stored" in shown
    assert shop.data("schedule", APP, "eu", "delete") == {"schedule": "eu", "deleted": True}
    assert "there is no schedule named 'eu'" in shop.refused("schedule", APP, "eu", code=1)


def test_what_cannot_be_done_is_said(shop: Shop) -> None:
    put(shop, "eu", BERLIN)
    words = "'stop' is not one of pause, resume, run, delete"
    assert words in shop.refused("schedule", APP, "eu", "stop", code=2)
    assert "missing NAME" in shop.refused("schedule", APP, code=2)
    change(shop.app, "UPDATE towline_schedule SET declared = 'x'")
    refused = shop.refused("schedule", APP, "eu", "delete", code=1)
    assert "declared in code: pause it, or take it out of the code" in refused


def test_names_are_completed(shop: Shop) -> None:
    put(shop, "eu-report", BERLIN)
    assert completed(shop, "schedule", APP, "e") == ["eu-report"]
    assert completed(shop, "schedule", APP, "eu-report", "r") == ["resume", "run"]
    assert completed(shop, "schedule", "none:app", "e") == []


def test_a_zone_that_is_not_known_here_is_shown_all_the_same(shop: Shop) -> None:
    put(shop, "eu", BERLIN)
    change(shop.app, "UPDATE towline_schedule SET tz = 'Mars/Base'")
    assert "Mars/Base" in shop.text("schedules", APP)
    assert "next ticks" not in shop.text("schedule", APP, "eu")


@pytest.mark.each_engine
def test_the_doctor_names_schedules_that_do_not_tick(any_shop: Shop) -> None:
    shop = any_shop
    for name in ("well", "late", "paused", "slow"):
        put(shop, name, BERLIN)
    late = "UPDATE towline_schedule SET next_at = 1000000 WHERE name"
    change(shop.app, f"{late} IN ('late', 'paused')")
    shop.app.schedule("paused").pause()
    change(shop.app, "UPDATE towline_schedule SET ticks = 2, skipped = 3 WHERE name = 'slow'")
    found = shop.data("doctor", APP, code=1)
    assert findings(found, "schedule", "problem") == [
        "schedule late does not tick: no running worker knows task add"
    ]
    assert findings(found, "schedule", "note") == [
        "schedule slow was skipped more often than run: 3 times of 5"
    ]
