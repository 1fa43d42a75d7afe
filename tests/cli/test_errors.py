"""errors: what failed, by task and kind of error."""

from __future__ import annotations

import sqlite3
from datetime import datetime

import pytest

from tests.cli.shop import APP, Shop
from tests.kit import claim, failed, new, register
from towline import views
from towline.model import Outcome
from towline.operation import Op, Steps
from towline.records import Ending


def fill(shop: Shop) -> None:
    """Jobs 1 to 8 of two tasks in two queues, that ended in every bad way; and two well."""

    def script() -> Steps[None]:
        store = shop.app.runner.store
        yield from register(store)
        yield from store.enqueue([new("send", queue="mail")] * 4 + [new("add")] * 6)
        held = yield from claim(store, 10, queues=["default", "mail"])
        by_id = {job.job_id: job for job in held}
        ends = {
            1: Ending(by_id[1], Outcome.FAILED, error="x", error_type="builtins.KeyError"),
            2: Ending(by_id[2], Outcome.FAILED, error="y", error_type="builtins.KeyError"),
            3: Ending(by_id[3], Outcome.FAILED, error="z", error_type="shop.Refused"),
            4: Ending(by_id[4], Outcome.TIMEOUT),
            5: Ending(by_id[5], Outcome.LOST),
            6: Ending(by_id[6], Outcome.CANCELLED),
            7: failed(by_id[7]),
            8: Ending(by_id[8], Outcome.FAILED, error="x", error_type="builtins.KeyError"),
            9: Ending(by_id[9], Outcome.COMPLETED, output="1"),
        }
        yield from store.finish(list(ends.values()))

    shop.app.runner.run(Op("fill", script))


def groups(found: views.Data) -> set[tuple[str, str, str | None, int, int]]:
    return {
        (f["task"], f["outcome"], f["error_type"], f["number"], f["job_id"])
        for f in found["failures"]
    }


@pytest.mark.each_engine
def test_errors(any_shop: Shop) -> None:
    """By task and kind, the most frequent first; a cancelled job is none."""
    assert any_shop.text("errors", APP) == "no failures\n"
    fill(any_shop)
    found = any_shop.data("errors", APP)
    assert found["complete"] is True
    assert found["failures"][0]["number"] == 2
    assert groups(found) == {
        ("send", "failed", "builtins.KeyError", 2, 2),
        ("send", "failed", "shop.Refused", 1, 3),
        ("send", "timeout", None, 1, 4),
        ("add", "lost", None, 1, 5),
        ("add", "failed", None, 1, 7),
        ("add", "failed", "builtins.KeyError", 1, 8),
    }
    for failure in found["failures"]:
        first, last = (datetime.fromisoformat(failure[key]) for key in ("first_at", "last_at"))
        assert first <= last
    text = any_shop.text("errors", APP)
    for words in ("KeyError", "shop.Refused", "timeout", "lost its worker", "without an exception"):
        assert words in text
    assert "builtins" not in text


@pytest.mark.each_engine
def test_which_errors(any_shop: Shop) -> None:
    fill(any_shop)

    def chosen(*words: str) -> int:
        found = any_shop.data("errors", "--url", any_shop.url, *words)
        return sum(failure["number"] for failure in found["failures"])

    assert chosen("--task", "send") == chosen("--queue", "mail") == 4
    assert chosen("--task", "send", "--queue", "default") == 0
    assert chosen("--until", "1h") == chosen("--since", "2099-01-01T00:00") == 0
    assert chosen("--since", "1h") == 7
    assert "given twice" in any_shop.refused("errors", APP, "--task", "a", "--task", "b", code=2)


@pytest.mark.each_engine
def test_the_jobs_of_a_group_are_listed_by_the_same_words(any_shop: Shop) -> None:
    """As the table of errors names the kind, or with its module, or by how they ended."""
    fill(any_shop)

    def listed(*words: str) -> list[int]:
        found = any_shop.data("jobs", "--url", any_shop.url, "--state", "failed", *words)
        return sorted(job["id"] for job in found["jobs"])

    assert listed("--error-type", "KeyError") == [1, 2, 8]
    assert listed("--error-type", "builtins.KeyError", "--task", "send") == [1, 2]
    assert listed("--error-type", "shop.Refused") == [3]
    assert listed("--error-type", "none", "--outcome", "failed") == [7]
    assert listed("--outcome", "timeout") == [4]
    assert listed("--ended-since", "1h") == [1, 2, 3, 4, 5, 7, 8]
    assert listed("--ended-until", "1h") == listed("--ended-since", "2099-01-01T00:00") == []
    refused = any_shop.refused("jobs", APP, "--ended-since", "soon", code=2)
    assert "neither a time" in refused


@pytest.mark.each_engine
def test_the_cost_is_bounded(any_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """R1: the newest are looked at, and it is said that there are more."""
    monkeypatch.setattr("towline.store.failures.EXAMINED", 4)
    fill(any_shop)
    found = views.failures_data(any_shop.app)
    assert found["complete"] is False
    assert groups(found) == {
        ("add", "lost", None, 1, 5),
        ("add", "failed", None, 1, 7),
        ("add", "failed", "builtins.KeyError", 1, 8),
    }


def test_at_least_is_shown(shop: Shop) -> None:
    """Numbers beyond the bound have a plus, and the last line says why."""
    shop.app.runner.run(shop.app.runner.store.enqueue([new("add", max_attempts=1)] * 10_001))
    shop.app.cancel_many(everything=True)
    with sqlite3.connect(shop.folder / "app.db") as connection:
        connection.execute("UPDATE towline_attempt SET outcome = 3")
    connection.close()
    text = shop.text("errors", APP)
    assert "10000+" in text
    assert "there are more" in text
