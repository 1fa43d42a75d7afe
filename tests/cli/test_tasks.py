"""tasks, enqueue."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.cli.shop import APP, Shop
from towline import Towline


def test_tasks(shop: Shop) -> None:
    """What each takes, and what of its settings is not usual. The database need not be there."""
    found = {task["name"]: task for task in shop.data("tasks", APP)["tasks"]}
    assert list(found) == sorted(found)
    assert found["add"]["signature"] == "add(a: int, b: int) -> int"
    assert found["add"]["description"] == "Add two numbers."
    assert (found["fetch"]["queue"], found["tell"]["run_in"]) == ("mail", "process")
    assert (found["bad"]["max_attempts"], found["add"]["backoff"]["first"]) == (1, 1.0)
    lines = {line.split()[0]: line for line in shop.text("tasks", APP).splitlines()}
    assert lines["add"].split("default")[1].strip() == "Add two numbers."
    assert lines["bad"].split("default")[1].strip() == "max_attempts=1"
    assert "run_in=process" in lines["tell"]
    assert "needs your tasks" in shop.refused("tasks", "--url", shop.url, code=2)
    shop.url = f"sqlite:///{shop.folder}/other.db"
    assert "add" in shop.text("tasks", APP)


def test_all_settings_are_shown(shop: Shop) -> None:
    (shop.folder / "odd.py").write_text(
        "from towline import Backoff, Towline\n"
        "app = Towline('sqlite:///odd.db')\n"
        "slow = Backoff(first=60, never=(KeyError,), per={OSError: None})\n"
        "@app.task(timeout=30, priority=7, backoff=slow)\n"
        "async def odd(a: int, /, *rest: str, b: float = 1.5) -> None: ...\n"
    )
    (task,) = shop.data("tasks", "odd:app")["tasks"]
    assert (task["timeout"], task["priority"], task["slots"]) == (30.0, 7, "loop")
    assert (task["backoff"]["never"], task["backoff"]["per"]) == (["KeyError"], {"OSError": None})
    assert task["signature"] == "odd(a: int, /, *rest: str, b: float = 1.5) -> None"
    assert "priority=7, timeout=30.0, backoff" in shop.text("tasks", "odd:app")


@pytest.mark.parametrize(
    ("words", "stored"),
    [
        (("add", "--args", "[1, 2]"), {"a": 1, "b": 2}),
        (("add", "--args", '{"a": 1, "b": 2}'), {"a": 1, "b": 2}),
        (("add", "-p", "a=1", "-p", "b=-2"), {"a": 1, "b": -2}),
        (("add", "--args", "[1]", "-p", "b=2"), {"a": 1, "b": 2}),
        (("say", "-p", "text=not = JSON"), {"text": "not = JSON"}),
        (("say", "-p", 'text="5"'), {"text": "5"}),
        (("say", "-p", "text="), {"text": ""}),
        (("die",), {}),
    ],
)
def test_enqueue(any_shop: Shop, words: tuple[str, ...], stored: Any) -> None:
    """The id is all that is printed; values are JSON if they are that, else text."""
    id = int(any_shop.text("enqueue", APP, *words))
    job = any_shop.app.job(id)
    assert (job.task, json.loads(job.arguments), job.state) == (words[0], stored, "pending")
    if not any(word.startswith("[") for word in words):
        id = int(any_shop.text("enqueue", "--url", any_shop.url, *words))
        assert any_shop.app.job(id).task == words[0]


def test_types_that_json_does_not_have(shop: Shop) -> None:
    """A text becomes what the signature asks for, and is stored as `enqueue()` stores it."""
    (shop.folder / "typed.py").write_text(
        "from datetime import date\n"
        "from towline import Towline\n"
        "app = Towline('sqlite:///typed.db')\n"
        "@app.task\n"
        "def bill(day: date, *parts: int, **more: bool) -> None: ...\n"
    )
    shop.run("migrate", "typed:app")
    shop.run(
        "enqueue", "typed:app", "bill", "--args", '["2026-05-01", 1, 2]', "-p", "paid=true"
    )  # fmt: skip
    app = Towline(f"sqlite:///{shop.folder}/typed.db")
    stored = {"day": "2026-05-01", "*parts": [1, 2], "**more": {"paid": True}}
    assert json.loads(app.job(1).arguments) == stored
    app.close()
    line = shop.refused("enqueue", "typed:app", "bill", "--args", '["May 1st"]', code=2)
    assert "bill(day: datetime.date" in line


def test_what_does_not_fit_is_not_stored(any_shop: Shop) -> None:
    """E7"""
    wrong = {
        ("add", "-p", "a=1"): "'b' is missing",
        ("add", "--args", "[1, 2, 3]"): "at most 2",
        ("add", "-p", "a=1", "-p", "b=two"): "add(a: int, b: int) -> int: the arguments do not fit",
        ("add", "-p", "a=1", "-p", "a=2"): "given twice",
        ("add", "-p", "a"): "is not NAME=VALUE",
        ("add", "--args", "5"): "a JSON list or object",
        ("add", "--args", "[1"): "is not JSON",
        ("add", "--args", "[NaN, 1]"): "is not JSON",
        ("say", "-p", "text=x", "-p", "ctx=1"): "handed in by the worker",
        ("sya", "-p", "text=x"): "did you mean say?",
        ("say", "-p", "text=x", "--timeout", "5"): "goes with --wait",
        ("say", "-p", "text=x", "--delay", "soon"): "neither a number of seconds",
        ("say", "-p", "text=x", "--delay", "-1"): "delay= cannot be negative",
        ("say", "-p", "text=x", "--key", ""): "must be 1 to 200",
    }
    for words, text in wrong.items():
        assert text in any_shop.refused("enqueue", APP, *words, code=2), words
    by_url = ("enqueue", "--url", any_shop.url)
    assert "by name" in any_shop.refused(*by_url, "add", "--args", "[1, 2]", code=2)
    assert "negative" in any_shop.refused(*by_url, "add", "--delay", "-1", code=2)
    assert "task name" in any_shop.refused(*by_url, "a\nb", code=2)
    assert "missing TASK" in any_shop.refused("enqueue", APP, code=2)
    assert "go by -p name=value" in any_shop.refused("enqueue", APP, "add", "1", "2", code=2)
    assert "missing REASON" in any_shop.refused("fail", APP, "1", code=2)
    assert list(any_shop.app.jobs()) == []


def test_when_and_where(any_shop: Shop) -> None:
    """The options of `using(...)`, with the app and without."""
    said = ("--queue", "mail", "--priority", "7", "--label", "by hand", "--delay", "2h")
    for target in ((APP,), ("--url", any_shop.url)):
        key = target[0]
        job = any_shop.data("enqueue", *target, "say", "-p", "text=x", "--key", key, *said)
        assert (job["created"], job["state"], job["queue"]) == (True, "scheduled", "mail")
        assert (job["priority"], job["label"], job["key"]) == (7, "by hand", key)
        done = any_shop.run("enqueue", *target, "say", "-p", "text=x", "--key", key)
        assert int(done.stdout) == job["id"]
        assert f"this key already: {job['id']}" in done.stderr


@pytest.mark.each_engine
def test_wait(any_shop: Shop) -> None:
    """C6: prints the output of the chain; 1 when it failed, or has not ended in time."""
    bad = ("enqueue", APP, "bad", "-p", "secret=x", "--wait")
    assert "has not ended" in any_shop.refused(*bad, "--timeout", "0.01", code=1)
    any_shop.start("worker", APP)
    fetched = any_shop.data("enqueue", APP, "fetch", "-p", "n=4", "--wait")
    assert (fetched["state"], fetched["chain"]["output"]) == ("completed", 5)
    assert any_shop.text("enqueue", APP, "say", "-p", "text=hello", "--wait") == '"hello"\n'
    assert "failed: ValueError: this cannot work" in any_shop.refused(*bad, code=1)
    failed = json.loads(any_shop.run(*bad, "--json", code=1).stdout)
    assert (failed["state"], failed["chain"]["state"]) == ("failed", "failed")


def test_enqueue_in_order_and_not_too_late(any_shop: Shop) -> None:
    """Y1, Y2: by the app and by the URL alone."""
    line = ("--on-conflict", "after", "--on-blocker-failure", "run", "--expires", "2h")
    for target in ((APP,), ("--url", any_shop.url)):
        words = (
            "enqueue",
            *target,
            "say",
            "-p",
            "text=x",
            "--key",
            f"line of {len(target)}",
            *line,
        )
        first, second = any_shop.data(*words), any_shop.data(*words)
        assert (first["state"], second["state"]) == ("pending", "blocked")
        for job in (first, second):
            created = datetime.fromisoformat(job["created_at"])
            assert datetime.fromisoformat(job["expires_at"]) - created == timedelta(hours=2)
    refused = any_shop.refused(
        "enqueue", APP, "say", "-p", "text=x", "--key", "k", *line[:2], code=2
    )
    assert 'on_conflict="after" needs on_blocker_failure="run"' in refused


def test_arguments_without_their_option_are_told_where_they_go(shop: Shop) -> None:
    assert "-p name=value" in shop.refused("enqueue", APP, "add", "a=1", "b=2", code=2)


def test_a_text_that_looks_like_a_number_is_a_text(shop: Shop) -> None:
    job = shop.data("enqueue", APP, "hold", "-p", "name=4111")["id"]
    assert shop.app.job(int(job)).arguments == '{"name":"4111"}'
    job = shop.data("enqueue", APP, "add", "-p", "a=1", "-p", "b=2")["id"]
    assert shop.app.job(int(job)).arguments == '{"a":1,"b":2}'
