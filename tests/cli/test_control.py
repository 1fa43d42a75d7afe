"""retry, cancel, run, complete, fail, pause, resume."""

from __future__ import annotations

import json
import socket

from tests.cli.shop import APP, Shop
from tests.kit import new


def failed(shop: Shop, number: int = 1) -> list[int]:
    jobs = [shop.put("add", a=n, b=n) for n in range(number)]
    for job in jobs:
        shop.app.fail(job, "broken")
    return jobs


def test_retry_by_id(any_shop: Shop) -> None:
    """K2"""
    one, two = failed(any_shop, 2)
    assert "pending" in any_shop.text("retry", APP, str(one))
    found = any_shop.data("retry", APP, str(two))
    assert [(job["id"], job["state"]) for job in found["jobs"]] == [(two, "pending")]
    assert found["errors"] == []


def test_retry_by_filter(any_shop: Shop) -> None:
    """K4: says how many, and can be previewed; of those that fit, the failed ones."""
    jobs = failed(any_shop, 3)
    dropped = any_shop.put("add", a=1, b=1)
    any_shop.app.cancel(dropped)
    preview = any_shop.data("retry", APP, "--task", "add", "--preview")
    assert preview == {"number": 3, "preview": True}
    assert any_shop.state(jobs[0]) == "failed"
    text = any_shop.text("retry", APP, "--state", "failed", "--task", "add")
    assert text == "3 jobs retried\n"
    assert {any_shop.state(job) for job in jobs} == {"pending"}
    assert any_shop.state(dropped) == "cancelled"
    text = any_shop.text("retry", APP, "--state", "cancelled", "--preview")
    assert text == "1 job would be retried\n"
    any_shop.app.fail(jobs[0], "broken")
    both = any_shop.data("retry", APP, "--state", "cancelled", "--state", "failed")
    assert both["number"] == 2
    assert any_shop.state(dropped) == any_shop.state(jobs[0]) == "pending"


def test_cancel_by_id(any_shop: Shop) -> None:
    """K1: the history says why and by whom."""
    job = any_shop.put("add", a=1, b=1)
    any_shop.run("cancel", "--url", any_shop.url, str(job), "--reason", "not wanted")
    found = any_shop.app.job(job)
    assert (found.state, found.error) == ("cancelled", "not wanted")
    assert (found.ended_by or "").endswith(f"@{socket.gethostname()}")
    other = any_shop.put("add", a=1, b=1)
    assert any_shop.data("cancel", APP, str(other))["jobs"][0]["state"] == "cancelled"


def test_cancel_by_filter(any_shop: Shop) -> None:
    """K4"""
    jobs = [any_shop.put("add", a=n, b=n) for n in range(3)]
    assert any_shop.data("cancel", APP, "--queue", "default", "--preview")["number"] == 3
    assert any_shop.text("cancel", APP, "--queue", "default") == "3 jobs cancelled\n"
    assert {any_shop.state(job) for job in jobs} == {"cancelled"}
    pending, later = any_shop.put("add", a=1, b=1), any_shop.store_later()
    assert any_shop.data("cancel", APP, "--state", "running", "--state", "blocked")["number"] == 0
    assert any_shop.data("cancel", APP, "--state", "pending", "--state", "scheduled")["number"] == 2
    assert any_shop.state(pending) == any_shop.state(later) == "cancelled"


def test_one_that_cannot_be_does_not_keep_the_others(any_shop: Shop) -> None:
    """Exit code 1, the reason of each on stderr, the rest is done."""
    one, two = failed(any_shop, 2)
    done = any_shop.run("retry", APP, "999", str(one), "998", "--json", code=1)
    found = json.loads(done.stdout)
    assert [job["id"] for job in found["jobs"]] == [one]
    assert [error["id"] for error in found["errors"]] == [999, 998]
    assert done.stderr.splitlines() == [
        "towline: there is no job 999",
        "towline: there is no job 998",
    ]
    assert "pending" in any_shop.refused("retry", APP, str(one), code=1)
    assert any_shop.state(two) == "failed"


def test_ids_or_filters(shop: Shop) -> None:
    """Never everything by accident."""
    for command in ("retry", "cancel", "delete"):
        assert "name them by id" in shop.refused(command, APP, code=2)
        assert "not both" in shop.refused(command, APP, "1", "--task", "add", code=2)
        assert "--preview" in shop.refused(command, APP, "1", "--preview", code=2)
        assert "'one' is not the id" in shop.refused(command, APP, "one", code=2)
    assert "--reason" in shop.refused("cancel", APP, "--task", "a", "--reason", "b", code=2)


def test_run_now(any_shop: Shop) -> None:
    """S2: a scheduled job, and one that is pending already; another state is named."""
    job = any_shop.store_later()
    for _ in range(2):
        assert any_shop.data("run", APP, str(job))["jobs"][0]["state"] == "pending"
    any_shop.run("cancel", APP, str(job))
    assert "is cancelled" in any_shop.refused("run", APP, str(job), code=1)
    assert "pending" in any_shop.text("run", APP, str(any_shop.store_later()))


def test_complete_from_outside(any_shop: Shop) -> None:
    """K3: the value is JSON, and of the task's type where that is known."""
    job = any_shop.put("add", a=1, b=1)
    assert "is not JSON" in any_shop.refused("complete", APP, str(job), "two", code=2)
    assert "does not fit" in any_shop.refused("complete", APP, str(job), '"two"', code=1)
    any_shop.run("complete", APP, "--", str(job), "-2")
    assert any_shop.app.job(job).output == -2
    other = any_shop.put("say", text="x")
    found = any_shop.data("complete", "--url", any_shop.url, str(other), '"said"')
    assert found["jobs"][0]["state"] == "completed"
    assert any_shop.app.job(other).output == "said"
    assert "completed" in any_shop.refused("complete", APP, str(other), '"again"', code=1)


def test_fail_from_outside(any_shop: Shop) -> None:
    """K3"""
    job = any_shop.put("add", a=1, b=1)
    found = any_shop.data("fail", APP, str(job), "the bank said no")
    assert found["jobs"][0]["error"] == "the bank said no"
    assert "failed" in any_shop.text("fail", APP, str(any_shop.put("add", a=1, b=1)), "no")


def test_pause_and_resume(any_shop: Shop) -> None:
    """L8; a queue may have a colon in its name."""
    assert any_shop.text("pause", APP, "mail") == "queue mail is paused\n"
    assert any_shop.data("pause", APP, "mail:eu") == {"queue": "mail:eu", "paused": True}
    assert any_shop.app.paused() == ["mail", "mail:eu"]
    assert any_shop.data("resume", APP, "mail") == {"queue": "mail", "paused": False}
    done = any_shop.run("resume", "mail:eu", env={"TOWLINE_APP": APP})
    assert done.stdout == "queue mail:eu goes on\n"
    assert any_shop.app.paused() == []


def test_pause_and_resume_every_queue(any_shop: Shop) -> None:
    """L8"""
    any_shop.put("add", a=1, b=2)
    assert any_shop.text("pause", APP, "*") == "every queue is paused\n"
    assert any_shop.app.paused() == ["*"]
    any_shop.run("worker", APP, "--drain")
    assert any_shop.app.jobs()[0].state == "pending"
    found = any_shop.text("doctor", APP)
    assert "every queue is paused" in found
    assert "no worker serves" not in found
    assert any_shop.text("resume", APP, "*") == "every queue goes on\n"


def test_what_a_paused_queue_holds_stays(shop: Shop) -> None:
    """L8: a worker that is started later leaves it alone."""
    shop.run("pause", APP, "mail")
    job = shop.store(new("fetch", queue="mail", arguments='{"n": 1}'))
    shop.run("worker", APP, "--drain")
    assert shop.state(job) == "pending"


def test_who_did_what_is_in_the_history(any_shop: Shop) -> None:
    """K3, K4: by user and host, of one and of many; `job` shows it."""
    (job,) = failed(any_shop)
    later = any_shop.store_later()
    any_shop.run("retry", APP, str(job))
    any_shop.run("cancel", APP, "--task", "add", "--state", "pending")
    any_shop.run("run", APP, str(later))
    any_shop.run("pause", APP, "mail")
    any_shop.run("resume", APP, "mail")
    assert [line.action for line in any_shop.app.audit(job=later)] == ["run_now"]
    any_shop.run("delete", APP, str(later), "--yes")
    lines = any_shop.app.audit()
    did = [(line.action, line.number) for line in lines]  # what was done to `later` went with it
    assert did == [(name, 1) for name in ("delete", "resume", "pause", "cancel", "retry")]
    (who,) = {line.by for line in lines}
    assert who.endswith(f"@{socket.gethostname()}")
    told = any_shop.data("job", APP, str(job))["audit"]
    assert [(line["done"], line["by"]) for line in told] == [("cancelled", who), ("retried", who)]
    text = any_shop.text("job", APP, str(job))
    assert "what people did" in text
    assert any("retried" in line and who in line for line in text.splitlines())
