"""A1, A7, A9: which tools there are, for whom, and that they do what their hints say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp import Client

from tests.agent.client import MODES, Visitor, call
from tests.agent.conftest import ALL, Visit, stored
from tests.database import Database
from towline import Towline, agent
from towline.errors import InvalidSetting
from towline.operation import Op
from towline.store.turn import promote
from towline.testing import Clock, isolated

READING = {
    "overview", "list_jobs", "get_job", "get_chain", "list_errors", "list_tasks", "wait",
}  # fmt: skip
WRITING = {
    "enqueue": {"enqueue"},
    "retry": {"retry_job", "retry_jobs"},
    "cancel": {"cancel_job", "cancel_jobs"},
    "run": {"run_job"},
    "pause": {"pause_queue", "resume_queue"},
}
# What a call of each tool needs; `{id}` is a job in a state that it is about.
CALLS: dict[str, dict[str, Any]] = {
    "overview": {},
    "list_jobs": {"state": "failed", "since": "1h"},
    "get_job": {"id": "failed"},
    "get_chain": {"id": "failed"},
    "list_errors": {},
    "list_tasks": {},
    "wait": {"id": "failed", "seconds": 1},
    "enqueue": {"task": "add", "arguments": {"a": 1}, "request_id": "one"},
    "retry_job": {"id": "failed"},
    "run_job": {"id": "scheduled"},
    "cancel_job": {"id": "scheduled"},
    "pause_queue": {"queue": "mail"},
    "resume_queue": {"queue": "stopped"},
    "retry_jobs": {"filter": {"state": "failed"}},
    "cancel_jobs": {"filter": {"task": "add"}},
}


@pytest.fixture
def jobs(app: Towline) -> dict[str, str]:
    return made(app)


def made(app: Towline) -> dict[str, str]:
    """A job that failed, one that is scheduled, and a queue that stands still."""
    add = app.registry["add"]
    failed, scheduled = add.enqueue(1), add.using(delay=3600).enqueue(2)
    app.fail(failed.id, "broken")
    app.pause("stopped")
    app.resume("mail")
    return {"failed": str(failed.id), "scheduled": str(scheduled.id)}


def arguments(tool: str, jobs: dict[str, str]) -> dict[str, Any]:
    given = CALLS[tool]
    return {**given, "id": jobs[given["id"]]} if "id" in given else given


@pytest.mark.parametrize("mode", MODES)
def test_A1_without_allow_only_what_reads_is_listed(visit: Visit, mode: str) -> None:
    assert {tool.name for tool in visit(mode, allow=()).tools()} == READING


@pytest.mark.parametrize("mode", MODES)
def test_A1_what_is_not_allowed_cannot_be_called(
    visit: Visit, jobs: dict[str, str], database: Database, mode: str
) -> None:
    before = stored(database)
    for allowed in ALL:
        visitor = visit(mode, allow=[allowed])
        names = {tool.name for tool in visitor.tools()}
        assert names == READING | WRITING[allowed]
        for tool in CALLS.keys() - names:
            assert f"there is no tool '{tool}'" in visitor.refusal(tool, **arguments(tool, jobs))
    assert stored(database) == before


def test_A1_rules_are_checked_when_the_server_is_made(app: Towline) -> None:
    with pytest.raises(InvalidSetting, match="delete"):
        agent.server(app, allow=["delete"])
    with pytest.raises(InvalidSetting, match="show= takes payloads, errors"):
        agent.server(app, show=["secrets"])
    with pytest.raises(InvalidSetting, match="did you mean add"):
        agent.server(app, tasks=["addd"])
    with pytest.raises(InvalidSetting, match="whose tasks are known"):
        agent.server(Towline(app.url), allow=["enqueue"])


def test_A1_other_tasks_are_neither_stored_nor_changed(
    visit: Visit, app: Towline, jobs: dict[str, str], database: Database
) -> None:
    """Nor by the name of a chain that began with an allowed one."""
    visitor = visit(tasks=["bad"])
    chain = app.registry["bad"].enqueue("x")
    app.complete(chain.id, app.registry["add"].then(5))
    app.fail(chain.id, "the last one")
    before = stored(database)
    assert "of task add" in visitor.refusal("retry_job", id=str(chain.id))
    assert "add" not in [task["name"] for task in visitor.get("list_tasks")["tasks"]]
    assert "no task 'add'" in visitor.refusal("enqueue", **CALLS["enqueue"])
    for tool in ("retry_job", "run_job", "cancel_job"):
        text = visitor.refusal(tool, **arguments(tool, jobs))
        assert "of task add, which you may not change" in text
    for tool in ("retry_jobs", "cancel_jobs"):
        assert visitor.get(tool, filter={"task": "add"})["would_change"] == 0
    assert stored(database) == before


@pytest.mark.each_engine
def test_A7_tools_do_what_their_hints_say(visit: Visit, app: Towline, database: Database) -> None:
    visitor = visit()
    for definition in visitor.tools():
        tool, hints = definition.name, definition.annotations
        assert hints is not None
        given = arguments(tool, made(app))
        before = stored(database)
        first = visitor.get(tool, **given)
        if "confirm" in first:  # so far a preview
            assert stored(database) == before, tool
            visitor.get(tool, **given, confirm=first["confirm"])
        after = stored(database)
        assert (after == before) == hints.read_only_hint, tool
        if hints.idempotent_hint:
            visitor.ask(tool, **given)
            assert stored(database) == after, tool
        destroys = {"cancel_job", "pause_queue", "retry_jobs", "cancel_jobs"}
        assert hints.destructive_hint == (tool in destroys)
        assert hints.open_world_hint == (tool in {"enqueue", "retry_job", "retry_jobs"})


def test_A9_all_definitions_are_small(visit: Visit) -> None:
    """Every tool of every conversation is read by the model: 6.5 KB, reading only 2.6."""

    def size(**rules: Any) -> int:
        tools = visit(**rules).tools()
        data = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
        return len(json.dumps(data, separators=(",", ":")).encode())

    assert len(visit().tools()) == 15
    assert size() <= 12 * 1024
    assert size(allow=()) <= 6 * 1024


def test_no_argument_is_a_place_or_a_path(visit: Visit) -> None:
    """Never: a URL, a path, SQL, the path of a function."""
    names = {name for tool in visit().tools() for name in tool.input_schema.get("properties", {})}
    assert names == {
        "state", "task", "queue", "since", "limit", "cursor", "id", "search", "seconds",
        "arguments", "request_id", "delay", "after", "filter", "confirm",
    }  # fmt: skip


def test_wrong_input_is_one_sentence(visit: Visit, jobs: dict[str, str]) -> None:
    visitor = visit()
    assert visitor.refusal("get_job", id="999") == "there is no job 999"
    assert "`id`" in visitor.refusal("get_job")
    assert "unknown field" in visitor.refusal("overview", path="/etc/passwd")
    assert "<= 50" in visitor.refusal("list_jobs", limit=51)
    assert "how long ago" in visitor.refusal("list_jobs", since="yesterday")
    assert "cursor" in visitor.refusal("list_jobs", cursor="; DROP TABLE")
    assert "only a failed or cancelled job" in visitor.refusal("retry_job", id=jobs["scheduled"])
    text = visitor.refusal("enqueue", task="add", arguments={"a": "x"}, request_id="1")
    assert text.startswith("add(a: int, b: int = 2) -> int: the arguments do not fit")
    assert "1e999" not in visitor.refusal("get_job", id="1" * 40)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


STRANGE: tuple[Any, ...] = (
    None, True, -1, 1e308, float("nan"), "", "\x00", "\ud800", "x" * 10_000, "9" * 30, "-1", "*",
    [], {}, [None], {"a": {}}, deep(200), {"since": "9999999d"}, {"state": "done"}, "99999w",
)  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_strange_input_breaks_nothing(
    visit: Visit, jobs: dict[str, str], mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a model makes up is refused in a sentence, or makes sense."""
    asking = visit(mode)

    async def all_of_it(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            for name in tool.input_schema.get("properties", {}):
                for value in STRANGE:
                    given = {**arguments(tool.name, jobs), name: value}
                    answer = await call(client, tool.name, **given)
                    assert "inside of the server" not in answer.text, (tool.name, name, value)

    asking.together(all_of_it)
    assert "failed" not in caplog.text


def test_a_database_that_is_away_says_whether_repeating_is_safe(
    visit: Visit, app: Towline, tmp_path: Any
) -> None:
    visitor = visit()
    app.use(f"sqlite:///{tmp_path}/nowhere/there.db")
    assert visitor.refusal("overview").endswith("repeating this is safe")


def test_reading_tells_the_story_of_a_job(visit: Visit, app: Towline) -> None:
    add, bad = app.registry["add"], app.registry["bad"]
    first = bad.enqueue("x")
    waiting = add.using(after=[first], on_blocker_failure="wait").enqueue(1)
    with app.worker(concurrency=1):
        app.wait([first], timeout=60)
    visitor = visit(allow=())
    job = visitor.get("get_job", id=str(first.id))
    assert (job["state"], job["error_type"]) == ("failed", "builtins.ValueError")
    assert job["attempts"][0]["error_type"] == "builtins.ValueError"
    assert "it failed" in job["why"]
    chain = visitor.get("get_chain", id=str(waiting.id))
    assert chain["blockers"] == [{"chain": str(first.id), "state": "failed", "task": "bad"}]
    assert visitor.get("get_chain", id=str(first.id))["needed_by"] == [str(waiting.id)]
    (error,) = visitor.get("list_errors")["errors"]
    assert (error["task"], error["count"], error["id"]) == ("bad", 1, str(first.id))
    page = visitor.get("list_jobs", limit=1)
    rest = visitor.get("list_jobs", limit=1, cursor=page["cursor"])
    assert [each["id"] for each in page["jobs"] + rest["jobs"]] == [
        str(waiting.id), str(first.id),
    ]  # fmt: skip
    assert visitor.get("wait", id=str(first.id))["chain_state"] == "failed"
    assert visitor.get("wait", id=str(waiting.id), seconds=0.01)["ended"] is False
    queues = visitor.get("overview")["queues"]
    assert queues["default"]["failed"] == 1


def test_a_wait_begins_when_a_job_could_run() -> None:
    """What was to come later has not waited since it was stored; and of several the one counts
    that waits longest."""
    clock = Clock()
    with isolated(clock=clock) as app:

        @app.task
        def add(a: int) -> int:
            return a

        def oldest() -> int:
            app.runner.run(Op("promote", promote, app.runner.store))
            found: Any = Visitor(agent.server(app)).get("overview")["queues"]["default"]
            return int(found["oldest_pending_seconds"])

        day = 24 * 3600
        add.using(delay=30 * day).enqueue(1)
        clock.advance(30 * day)
        assert oldest() == 0
        clock.advance(60)
        assert oldest() == 60
        add.using(delay=day).enqueue(2)
        add.enqueue(3)
        clock.advance(day)
        assert oldest() == day + 60
        app.cancel(1)
        assert oldest() == day  # the younger of two, which was not to wait
