"""The group command, for people and with --json for programs."""

from __future__ import annotations

from tests.cli.shop import APP, Shop
from tests.kit import new
from towline.model import Policy
from towline.task import GROUP


def test_F2_a_group_is_shown_failed_members_first(shop: Shop) -> None:
    members = [shop.store(new("add", arguments='{"a": 1, "b": 2}')) for _ in range(4)]
    id = shop.store(new(GROUP, after=members, policy=Policy.RUN))
    shop.app.complete(members[0], 3)
    shop.app.fail(members[2], "out of paper")
    data = shop.data("group", APP, str(id))
    assert {key: data[key] for key in ("id", "state", "total", "ended", "failed")} == {
        "id": id, "state": "blocked", "total": 4, "ended": 2, "failed": 1,
    }  # fmt: skip
    assert [member["position"] for member in data["members"]] == [2, 0, 1, 3]
    assert data["members"][0]["error"] == "out of paper"
    assert data["why"].startswith("it waits for 3 of the 4 members")
    text = shop.text("group", APP, str(id), "--limit", "2")
    assert "2 of 4" in text
    assert "out of paper" in text
    assert "2 of 4 members are shown" in text
    shop.run("worker", APP, "--drain")
    assert shop.data("group", APP, str(id))["state"] == "completed"
    assert GROUP not in shop.text("tasks", APP)


def test_a_group_that_is_not_there(shop: Shop) -> None:
    assert "there is no job 99" in shop.refused("group", APP, "99", code=1)


def test_a_job_with_very_many_blockers_names_its_group(shop: Shop) -> None:
    jobs = [new("add", arguments='{"a": 1, "b": 2}') for _ in range(120)]
    ids = [e.record.id for e in shop.app.runner.run(shop.app.runner.store.enqueue(jobs))]
    id = shop.store(new(GROUP, after=ids, policy=Policy.RUN))
    assert f"120 in all: towline group {id}" in shop.text("job", APP, str(id))
    assert len(shop.data("job", APP, str(id))["blockers"]) == 120
