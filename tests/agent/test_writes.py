"""A2, A3, A6: what an agent changes happens once, to what was named, and under its name."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.agent.conftest import Visit, stored
from tests.database import Database
from towline import Towline
from towline.agent import previews, writing

ONE = {"task": "add", "arguments": {"a": 1}, "request_id": "r-1"}


@pytest.mark.each_engine
def test_A2_a_repeated_request_is_one_job(visit: Visit, app: Towline, database: Database) -> None:
    first = visit().get("enqueue", **ONE)
    assert first["created"]
    before = stored(database)
    again = visit(name="another", mode="legacy").get("enqueue", **ONE)  # after a restart
    assert (again["id"], again["created"]) == (first["id"], False)
    app.cancel(int(first["id"]))  # also when it has ended
    assert visit().get("enqueue", **ONE)["id"] == first["id"]
    assert len(app.jobs()) == 1
    assert before["towline_job"] == stored(database)["towline_job"]


@pytest.mark.each_engine
def test_A2_requests_at_the_same_time_are_one_job(visit: Visit, app: Towline) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: visit().get("enqueue", **ONE), range(4)))
    assert len({each["id"] for each in found}) == 1
    assert sum(each["created"] for each in found) == 1
    assert len(app.audit()) == 1


@pytest.mark.each_engine
def test_A2_a_request_id_at_the_same_time_for_two_tasks_is_one_job(
    visit: Visit, app: Towline
) -> None:
    calls = [ONE, {**ONE, "task": "send", "arguments": {"tenant": "a"}}]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda call: visit().ask("enqueue", **call), 2 * calls))
    assert len(app.jobs()) == 1
    assert sorted(each.refused for each in found) == [False, False, True, True]


def test_A2_a_request_id_stands_for_one_call(visit: Visit, app: Towline) -> None:
    visit().get("enqueue", **ONE)
    text = visit().refusal("enqueue", **{**ONE, "arguments": {"a": 2}})
    assert "with other arguments: nothing was stored" in text
    assert len(app.jobs()) == 1


@pytest.mark.each_engine
def test_A2_a_request_id_stands_for_one_task(
    visit: Visit, app: Towline, database: Database
) -> None:
    """Keys are by task, request ids are not: also after a restart, and for whom other tasks are
    closed."""
    first = visit().get("enqueue", **ONE)["id"]
    before = stored(database)
    other = {**ONE, "task": "send", "arguments": {"tenant": "a"}}
    for rules in ({}, {"tasks": ["send"]}):
        text = visit(**rules).refusal("enqueue", **other)
        assert f"'r-1' was used for job {first}, of another task: nothing was stored" in text
        assert stored(database) == before
    assert visit().get("enqueue", **{**other, "request_id": "r-2"})["created"]
    app.cancel(int(first))
    app.delete(int(first))  # with what it stored a request id goes
    assert visit().get("enqueue", **other)["created"]


def test_A2_a_request_is_known_again_when_its_chain_has_gone_on(visit: Visit, app: Towline) -> None:
    first = visit().get("enqueue", **ONE)
    app.complete(int(first["id"]), app.registry["bad"].then("x"))
    again = visit(tasks=["add"]).get("enqueue", **ONE)
    assert (again["id"], again["created"]) == (first["id"], False)
    other = {**ONE, "task": "bad", "arguments": {"text": "x"}}  # as the chain has it by now
    assert "of another task" in visit().refusal("enqueue", **other)
    assert len(app.jobs()) == 2


def test_a_graph_and_a_delay(visit: Visit, app: Towline) -> None:
    first = visit().get("enqueue", **ONE, delay=3600)
    assert first["state"] == "scheduled"
    second = visit().get("enqueue", **{**ONE, "request_id": "r-2"}, after=[first["id"]])
    assert second["state"] == "blocked"
    assert [each.chain_id for each in app.blockers(int(second["id"]))] == [int(first["id"])]


@pytest.fixture
def failed(app: Towline) -> list[int]:
    ids = [app.registry["add"].enqueue(n).id for n in range(12)]
    for id in ids:
        app.fail(id, "broken")
    return ids


@pytest.mark.each_engine
def test_A3_a_call_on_many_touches_what_its_preview_named(
    visit: Visit, app: Towline, failed: list[int]
) -> None:
    """Jobs that fit by now do not belong to it: neither new ones nor old ones."""
    old = app.registry["add"].enqueue(100)
    *some, running = failed
    app.retry(running)
    visitor = visit()
    filter = {"state": "failed", "task": "add"}
    preview = visitor.get("retry_jobs", filter=filter)
    assert preview["would_change"] == 11
    assert preview["ids"] == [str(id) for id in reversed(some)][:10]
    app.fail(running, "once more")
    app.fail(old.id, "now, too")
    new = app.registry["add"].enqueue(101)
    app.fail(new.id, "later")
    app.retry(some[0])  # by somebody else
    done = visitor.get("retry_jobs", filter=filter, confirm=preview["confirm"])
    assert done == {"changed": 10}
    assert {job.id for job in app.jobs(state="failed")} == {running, old.id, new.id}


@pytest.mark.each_engine
def test_A3_beside_others_who_fail_retry_and_confirm(visit: Visit, app: Towline) -> None:
    """Jobs come to fit all the while, and several confirm at once: one of them does it, to exactly
    the jobs that were named."""
    add, stop = app.registry["add"], threading.Event()
    named = {add.enqueue(n).id for n in range(10)}
    others = [add.enqueue(n).id for n in range(5)]
    for id in named:
        app.fail(id, "broken")

    def churn() -> None:
        while not stop.is_set():
            for id in [*others, add.enqueue(0).id]:
                app.fail(id, "now it fits")
            for id in others:
                app.retry(id)

    visitor, filter = visit(), {"state": "failed", "task": "add"}
    preview = visitor.get("retry_jobs", filter=filter)
    assert {int(id) for id in preview["ids"]} == named
    with ThreadPoolExecutor(5) as pool:
        churning = pool.submit(churn)
        confirm = preview["confirm"]
        answers = list(
            pool.map(lambda _: visitor.ask("retry_jobs", filter=filter, confirm=confirm), range(4))
        )
        stop.set()
        churning.result()
    assert sorted(answer.refused for answer in answers) == [False, True, True, True]
    touched = {job.id for job in app.jobs() if app.audit(job=job.id)}
    assert touched == named
    assert [app.job(id).state for id in named] == ["pending"] * 10


def test_A3_a_token_is_good_once_and_for_its_call(
    visit: Visit, app: Towline, failed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = visit()
    filter = {"state": "failed"}
    token = visitor.get("retry_jobs", filter=filter)["confirm"]
    for tool, wrong, confirm in (
        ("retry_jobs", {"state": "cancelled"}, token),
        ("retry_jobs", {"state": "failed", "task": "add"}, token),
        ("cancel_jobs", filter | {"state": "pending"}, token),
        ("retry_jobs", filter, token[:-1]),
        ("retry_jobs", filter, ""),
    ):
        assert "another call" in visitor.refusal(tool, filter=wrong, confirm=confirm)
    assert "another call" in visit().refusal("retry_jobs", filter=filter, confirm=token)
    assert len(app.jobs(state="failed")) == 12
    assert visitor.get("retry_jobs", filter=filter, confirm=token) == {"changed": 12}
    assert "is used" in visitor.refusal("retry_jobs", filter=filter, confirm=token)
    monkeypatch.setattr(previews, "GOOD_FOR", 0.0)
    late = visitor.get("cancel_jobs", filter={"task": "add"})["confirm"]
    text = visitor.refusal("cancel_jobs", filter={"task": "add"}, confirm=late)
    assert "too old" in text


def test_A3_tokens_that_nobody_uses_take_no_room() -> None:
    kept = previews.Previews()
    tokens = [kept.keep("retry", {}, [n]) for n in range(previews.MOST + 1)]
    assert kept.look(tokens[0], "retry", {}) is None
    assert kept.take(tokens[-1], "retry", {}) is not None


def test_A3_too_many_jobs_are_refused(
    visit: Visit, failed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = visit()
    assert "which jobs?" in visitor.refusal("cancel_jobs", filter={})
    assert "can be changed" in visitor.refusal("retry_jobs", filter={"state": "pending"})
    monkeypatch.setattr(writing, "MOST_MANY", 11)
    assert "more than 11 jobs" in visitor.refusal("retry_jobs", filter={"state": "failed"})
    monkeypatch.setattr(writing, "MOST_MANY", 12)
    assert visitor.get("retry_jobs", filter={"state": "failed"})["would_change"] == 12


@pytest.mark.each_engine
def test_A6_every_write_names_its_client(
    visit: Visit, app: Towline, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "towline.agent")
    visitor = visit(name="claude\n<b>code")
    job = visitor.get("enqueue", **ONE, delay=3600)["id"]
    visitor.get("run_job", id=job)
    visitor.get("cancel_job", id=job)
    visitor.get("retry_job", id=job)
    visitor.get("pause_queue", queue="mail")
    visitor.get("resume_queue", queue="mail")
    token = visitor.get("cancel_jobs", filter={"task": "add"})["confirm"]
    visitor.get("cancel_jobs", filter={"task": "add"}, confirm=token)
    lines = app.audit()
    assert {line.by for line in lines} == {"mcp:claudebcode"}
    assert [line.action for line in reversed(lines)] == [
        "enqueue", "run_now", "cancel", "retry", "pause", "resume", "cancel",
    ]  # fmt: skip
    assert len(caplog.messages) == 7
    assert all("by mcp:claudebcode" in message for message in caplog.messages)


@pytest.mark.each_engine
def test_A6_the_limit_holds_for_writes_at_the_same_time(
    visit: Visit, app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "WRITES", 3)
    visitors = [visit(name=f"client {number}") for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        done = list(
            pool.map(
                lambda one: one[1].ask("enqueue", **{**ONE, "request_id": f"r-{one[0]}"}),
                enumerate(visitors),
            )
        )
    assert sum(not answer.refused for answer in done) == len(app.jobs()) == 3


@pytest.mark.each_engine
def test_A6_the_limit_holds_for_all_clients_and_servers(
    visit: Visit, app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history counts: neither another name, nor another server, nor a new process has more."""
    monkeypatch.setattr(writing, "WRITES", 3)
    monkeypatch.setattr(writing, "LINES", 2)
    app.pause("other", by="a person")

    def store(number: int, **who: Any) -> Any:
        return visit(**who).ask("enqueue", **{**ONE, "request_id": f"r-{number}"})

    assert [store(n, name=f"client {n}").refused for n in range(4)] == [False, False, False, True]
    assert len(app.jobs()) == 3
    assert "3 times a minute" in visit().refusal("pause_queue", queue="mail")
    token = visit().get("cancel_jobs", filter={"task": "add"})["confirm"]
    assert "3 times a minute" in visit().refusal(
        "cancel_jobs", filter={"task": "add"}, confirm=token
    )
    assert visit().get("overview")["queues"]["default"]["pending"] == 3  # reading goes on


def test_A6_the_limit_is_over_after_a_minute(
    visit: Visit, app: Towline, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "WRITES", 1)
    visit().get("enqueue", **ONE)
    assert visit().ask("pause_queue", queue="mail").refused
    monkeypatch.setattr(writing, "MINUTE", 0)
    visit().get("pause_queue", queue="mail")
    assert app.paused() == ["mail"]
