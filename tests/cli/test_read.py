"""jobs, job, chain, stats, workers: for people, and with --json for programs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests import database as databases
from tests.cli.shop import APP, Shop
from tests.kit import new

JOB_KEYS = {
    "id", "chain_id", "position", "task", "label", "queue", "priority", "lane", "weight", "key",
    "schedule", "tick", "state", "reason", "attempt", "max_attempts", "outcome", "open_blockers",
    "continued_by", "created_at", "run_at", "expires_at", "started_at", "ended_at", "worker",
    "ended_by", "progress", "error",
}  # fmt: skip


@pytest.fixture(scope="session", params=[databases.SQLITE, databases.newest()])
def busy(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """Jobs of every kind that can be looked at; the tests change none of them."""
    folder = tmp_path_factory.mktemp("busy")
    with databases.opened(request.param, folder) as database:
        shop = Shop(folder, database.url)
        label = "größer 大, nightly"
        shop.store(new("add", arguments='{"a": 1, "b": 2}', label=label, key="k1"))
        shop.store(new("fetch", arguments='{"n": 3}', queue="mail"))
        shop.store(new("bad", arguments='{"secret": "x"}', max_attempts=1))
        shop.run("worker", APP, "--drain")
        shop.put("add", a=5, b=5)
        blocker = shop.put("add", a=6, b=6)
        shop.store(new("join", after=[blocker]))
        shop.store_later()
        shop.app.pause("mail")
        yield shop
        shop.close()


def test_jobs(busy: Shop) -> None:
    """R1: newest first; filters; keys that stay, ids as numbers, times in UTC."""
    found = busy.data("jobs", APP)
    jobs = found["jobs"]
    assert found["cursor"] is None
    ids = [job["id"] for job in jobs]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 8
    assert {frozenset(job) for job in jobs} == {frozenset(JOB_KEYS)}
    for job in jobs:
        assert datetime.fromisoformat(job["created_at"]).tzinfo is not None
        assert job["created_at"].endswith("Z")
    text = busy.text("jobs", APP)
    assert len(text.splitlines()) == 9
    for word in ("nightly", "ValueError: this cannot work", "waits for 1", "continued by", "in "):
        assert word in text


@pytest.mark.parametrize(
    ("filter", "tasks"),
    [
        (("--state", "failed"), ["bad"]),
        (("--state", "failed", "--state", "blocked"), ["join", "bad"]),
        (("--state", "scheduled", "--state", "scheduled"), ["add"]),
        (("--task", "join"), ["join"]),
        (("--queue", "mail"), ["add", "fetch"]),
        (("--key", "k1"), ["add"]),
        (("--label", "größer 大, nightly"), ["add"]),
        (("--since", "1h", "--state", "scheduled"), ["add"]),
        (("--until", "2020-01-01T00:00"), []),
        (("--state", "cancelled"), []),
        (("--roots", "--queue", "mail"), ["fetch"]),
        (("--chain-task", "fetch"), ["add", "fetch"]),
        (("--chain-task", "fetch", "--roots"), ["fetch"]),
        (("--worker", "nobody"), []),
    ],
)
def test_filters(busy: Shop, filter: tuple[str, ...], tasks: list[str]) -> None:
    """R1"""
    found = busy.data("jobs", "--url", busy.url, *filter)
    assert [job["task"] for job in found["jobs"]] == tasks
    if not tasks:
        assert busy.text("jobs", APP, *filter) == "no jobs\n"


def test_pages(busy: Shop) -> None:
    """R1: a cursor goes on where the page ended."""
    seen: list[int] = []
    cursor: list[str] = []
    while True:
        page = busy.data("jobs", APP, "--limit", "3", *cursor)
        seen += [job["id"] for job in page["jobs"]]
        if page["cursor"] is None:
            break
        cursor = ["--cursor", page["cursor"]]
    assert len(seen) == len(set(seen)) == 8
    assert "--cursor " in busy.text("jobs", APP, "--limit", "3")
    oldest = busy.data("jobs", APP, "--oldest", "--limit", "1")
    assert oldest["jobs"][0]["id"] == min(seen)


def test_job(busy: Shop) -> None:
    """Its attempts, its error with the traceback, its arguments; what it waits for."""
    (failed,) = busy.data("jobs", APP, "--state", "failed")["jobs"]
    full = busy.data("job", APP, str(failed["id"]))
    assert full.keys() >= JOB_KEYS | {"arguments", "output", "attempts", "blockers"}
    assert full["arguments"] == {"secret": "***"}  # X12
    (attempt,) = full["attempts"]
    assert (attempt["number"], attempt["outcome"]) == (1, "failed")
    assert "Traceback" in attempt["error"]
    assert attempt["error_type"] == "builtins.ValueError"
    text = busy.text("job", APP, str(failed["id"]))
    for word in ("failed", "attempts", "last error", "Traceback", "shop.py"):
        assert word in text
    (waiting,) = busy.data("jobs", APP, "--state", "blocked")["jobs"]
    full = busy.data("job", APP, str(waiting["id"]))
    assert [(b["task"], b["state"]) for b in full["blockers"]] == [("add", "open")]
    assert "waits for" in busy.text("job", APP, str(waiting["id"]))
    first = busy.data("job", APP, "1")
    assert (first["output"], first["description"]) == (3, "Add two numbers.")
    assert "Add two numbers." in busy.text("job", APP, "1")


def test_chain(busy: Shop) -> None:
    """C1: all its jobs, in order; who waits for it."""
    found = busy.data("chain", APP, "2")
    assert [job["task"] for job in found["jobs"]] == ["fetch", "add"]
    assert (found["state"], found["output"]) == ("completed", 4)
    (waiting,) = busy.data("jobs", APP, "--state", "blocked")["jobs"]
    (blocker,) = busy.data("job", APP, str(waiting["id"]))["blockers"]
    found = busy.data("chain", APP, str(blocker["chain_id"]))
    assert [d["job_id"] for d in found["dependents"]] == [waiting["id"]]
    text = busy.text("chain", APP, "2")
    assert "fetch" in text
    assert "jobs" in text
    assert "who waits for it" in busy.text("chain", APP, str(blocker["chain_id"]))


def test_stats_by_task(busy: Shop) -> None:
    """R2"""
    found = busy.data("stats", APP, "--tasks")
    assert found["tasks"]["bad"]["failed"] == 1
    assert found["total"] == busy.data("stats", APP)["total"]
    text = busy.text("stats", APP, "--tasks")
    assert text.split()[0] == "task"
    assert "join" in text


def test_jobs_by_worker(busy: Shop) -> None:
    """R1: the name is the one in the history."""
    (name,) = {job["worker"] for job in busy.data("jobs", APP, "--state", "failed")["jobs"]}
    found = busy.data("jobs", APP, "--worker", name)["jobs"]
    assert {job["task"] for job in found} >= {"bad", "fetch"}


def test_stats(busy: Shop) -> None:
    """R2"""
    found = busy.data("stats", APP)
    default, mail, total = found["queues"]["default"], found["queues"]["mail"], found["total"]
    assert (default["pending"], default["blocked"], default["scheduled"]) == (2, 1, 1)
    assert (default["completed"], default["failed"]) == (1, 1)
    assert (mail["completed"], mail["paused"], default["paused"]) == (2, True, False)
    assert (total["completed"], total["at_least"]) == (3, [])
    assert found["workers"] == 0
    assert found["oldest_pending"].endswith("Z")
    hour = found["last_hour"]
    assert (hour["ended"], hour["failed"]) == (4, 1)
    for times in (hour["run"], hour["wait"]):
        assert 0 <= times["p50"] <= times["p95"] <= times["p99"]
    text = busy.text("stats", APP)
    for word in ("default", "mail", "total", "paused: mail", "0 workers", "oldest pending"):
        assert word in text
    assert "cancelled" not in text  # nothing is
    assert "last hour: 4 ended · 1 failed · wait p50 " in text


def test_workers(any_shop: Shop) -> None:
    """W4"""
    assert any_shop.data("workers", APP) == {"workers": []}
    assert "no workers" in any_shop.text("workers", APP)
    job = any_shop.put("hold", name="one")
    running = any_shop.start("worker", APP, "--name", "w1", "--concurrency", "3")
    any_shop.began("one")
    (worker,) = any_shop.data("workers", APP)["workers"]
    assert (worker["name"], worker["pid"], worker["running"]) == ("w1", running.process.pid, 1)
    assert (worker["concurrency"], worker["queues"]) == (3, ["default", "mail"])
    assert worker["expired"] is False
    text = any_shop.text("workers", APP)
    assert "w1" in text
    assert "1/3" in text
    assert "for " in any_shop.text("jobs", APP, "--state", "running")
    assert str(job) in any_shop.text("jobs", APP, "--state", "running")
    assert any_shop.data("stats", APP)["running"] == 1


def test_what_is_stored_cannot_move_the_cursor(shop: Shop) -> None:
    """Text of others is shown as text: no control characters, no markup."""
    job = shop.put("add", a=1, b=1)
    shop.app.fail(job, "\x1b[2J\x07 [bold]boom[/bold]")
    for words in (("jobs", APP), ("job", APP, str(job))):
        text = shop.text(*words)
        assert "\x1b" not in text
        assert "\x07" not in text
        assert "[bold]boom[/bold]" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_cuts_words_but_no_column(shop: Shop, width: int) -> None:
    task = "a_task_whose_name_is_really_rather_long_for_one"
    shop.store(new(task, label="and its label is a long one, too, that nobody reads to its end"))
    text = shop.run("jobs", "--url", shop.url, env={"COLUMNS": str(width)}).stdout
    header, line = text.splitlines()
    assert header.split() == ["id", "state", "task", "queue", "attempt", "created"]
    assert line.split()[:2] == ["1", "pending"]
    assert len(line) <= width
    assert "…" in line


def test_colours_are_for_terminals(shop: Shop) -> None:
    """On a terminal, and nowhere else."""
    shop.put("add", a=1, b=1)
    assert "\x1b" not in shop.text("jobs", APP)
    primary, secondary = pty.openpty()
    env = {**shop.environment(), "TERM": "xterm-256color"}
    env.pop("NO_COLOR", None)
    subprocess.run(
        [sys.executable, "-m", "towline", "jobs", APP],
        cwd=shop.folder, env=env, stdout=secondary, check=True,
    )  # fmt: skip
    os.close(secondary)
    shown = os.read(primary, 100_000).decode()
    os.close(primary)
    assert "\x1b[33mpending" in shown


def test_json_is_one_document(busy: Shop) -> None:
    """Of UTF-8, whatever the words in it."""
    document = json.loads(busy.text("jobs", APP, "--json", "--key", "k1"))
    assert document["jobs"][0]["label"] == "größer 大, nightly"
