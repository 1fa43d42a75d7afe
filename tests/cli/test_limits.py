"""limits, limit, lanes, jobs --lane."""

from __future__ import annotations

from tests.cli.shop import APP, Shop
from tests.kit import new
from towline.exit_codes import USAGE


def test_G11_a_limit_is_set_shown_and_taken_away(any_shop: Shop) -> None:
    assert any_shop.text("limits", APP) == "no limits\n"
    any_shop.run("limit", APP, "mail", "--concurrency", "3", "--rate", "100", "--per", "60")
    found = any_shop.data("limit", APP, "mail", "--lane", "*", "--concurrency", "2")["limits"]
    assert [(each["lane"], each["concurrency"], each["rate"]) for each in found] == [
        (None, 3, 100),
        ("*", 2, None),
    ]
    text = any_shop.text("limits", APP)
    assert "0 of 3" in text
    assert "0 of 100 in 1 min" in text
    assert "each" in text
    any_shop.run("limit", APP, "mail", "--lane", "*", "--none")
    assert [each["lane"] for each in any_shop.data("limits", APP)["limits"]] == [None]
    (line, *_) = any_shop.app.audit(queue="mail")
    assert line.action == "limit"


def test_a_limit_that_makes_no_sense_is_refused(any_shop: Shop) -> None:
    said = any_shop.refused("limit", APP, "mail", "--concurrency", "-1", code=USAGE)
    assert "from 0" in said
    said = any_shop.refused("limit", APP, "mail", "--none", "--concurrency", "1", code=USAGE)
    assert "--none takes the limit away" in said
    said = any_shop.refused("limit", APP, "mail", "--per", "5", code=USAGE)
    assert "--per is the time of --rate" in said


def test_lanes_and_jobs_of_a_lane(any_shop: Shop) -> None:
    store = any_shop.app.runner.store
    any_shop.app.runner.run(store.enqueue([new(queue="mail", lane=lane) for lane in "aabb"]))
    any_shop.app.runner.run(store.claim(1, ["mail"], 1))
    found = {lane["lane"]: lane for lane in any_shop.data("lanes", APP, "mail")["lanes"]}
    assert {name: lane["state"] for name, lane in found.items()} == {"a": "open", "b": "open"}
    assert sum(lane["waiting"] for lane in found.values()) == 3
    assert "last served" in any_shop.text("lanes", APP, "mail")
    assert any_shop.text("lanes", APP, "other") == "no lanes in queue other\n"
    jobs = any_shop.data("jobs", APP, "--lane", "b")["jobs"]
    assert [(job["lane"], job["queue"]) for job in jobs] == [("b", "mail")] * 2
    assert "lane" in any_shop.text("job", APP, str(jobs[0]["id"]))
