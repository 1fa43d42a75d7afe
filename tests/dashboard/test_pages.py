"""Pages and their data, on both engines: what is shown, what can be done, what text cannot do."""

from __future__ import annotations

import asyncio
import html
import os
import re
import threading
from typing import Any

import httpx
import pytest

from tests import database as databases
from tests.dashboard.conftest import MARKUP
from tests.dashboard.hostile import store_hostile
from towline import Towline
from towline.dashboard import live
from towline.dashboard.pages import PAGES


@pytest.mark.each_engine
def test_every_page_and_its_data(client: httpx.Client, jobs: dict[str, int]) -> None:
    for road in ("/", "/jobs", "/queues", "/tasks", "/schedules", "/workers", "/doctor", "/audit"):
        assert client.get(road).status_code == 200, road
        assert client.get(f"/api{road}").headers["content-type"] == "application/json"
    for id in jobs.values():
        assert client.get(f"/jobs/{id}").status_code == 200
        assert client.get(f"/chains/{id}").status_code == 200
        assert client.get(f"/chains/{id}/graph").status_code == 200


def test_an_empty_database_says_what_to_do(client: httpx.Client) -> None:
    for road, words in {
        "/": "start one with",
        "/jobs": "No job yet: store one with",
        "/jobs?state=failed": "No job fits",
        "/jobs?q=nothing": "Nothing has the id, key, label or task",
        "/queues": "one begins with its first job",
        "/tasks": "name your app",
        "/tasks?queue=mail": "Nothing ended in this queue",
        "/workers": "start one with",
        "/schedules": "No schedule yet",
        "/audit": "Nobody has done anything yet",
        "/audit?queue=mail": "see all that was done",
        "/many?action=retry": "None was selected",
    }.items():
        assert words in client.get(road).text, road


@pytest.mark.each_engine
def test_numbers_lead_to_what_they_count(client: httpx.Client, jobs: dict[str, int]) -> None:
    """Every link of every page, with the numbers that stand in it, leads to a page of ours."""
    begun = [page.path for page in PAGES if page.key]
    begun += [f"/jobs/{jobs['bad']}", f"/chains/{jobs['waiting']}", "/tasks?range=1h&task=second"]
    found = {
        html.unescape(link) if link.startswith("/") else f"/tasks{html.unescape(link)}"
        for road in begun
        for link in re.findall(r' href="([/?][^"#]*)', client.get(road).text)
        if not link.startswith("/static")
    }
    assert len(found) > 40
    for link in found:
        assert client.get(link).status_code == 200, link
    queues = client.get("/queues").text
    assert 'href="/tasks?range=1h&amp;queue=default#wait"' in queues
    assert f'href="/jobs/{jobs["pending"]}"' in queues, "the oldest that waits"


@pytest.mark.each_engine
def test_tasks_of_one_queue(client: httpx.Client, app: Towline, jobs: dict[str, int]) -> None:
    def ended(query: str, range: str = "1h") -> dict[str, int]:
        data = client.get(f"/api/tasks?range={range}&{query}").json()
        assert sum(cell["jobs"] for cell in data["run"]["cells"]) == sum(
            line["ended"] for line in data["tasks"]
        )
        return {line["name"]: line["ended"] for line in data["tasks"]}

    assert ended("queue=default") == {"bad": 1, "first": 1, "second": 1}
    assert ended("queue=mail") == {}
    assert ended("queue=default", "7d") == {"bad": 1, "first": 1, "second": 1}
    one = client.get("/api/tasks?range=7d&task=bad").json()
    assert [cell["jobs"] for cell in one["run"]["cells"]] == [1]
    app.worker(queues=["mail"], concurrency=1, drain=True).run()
    assert ended("queue=mail&again=1") == {"second": 1}


def test_what_is_wrong_comes_first_in_the_doctors_words(
    client: httpx.Client, jobs: dict[str, int]
) -> None:
    levels = [found["level"] for found in client.get("/api/doctor").json()["findings"]]
    assert levels == sorted(levels, key=["problem", "note", "ok"].index)
    assert {"note", "ok"} <= {*levels}


def test_the_overview_counts(client: httpx.Client, jobs: dict[str, int]) -> None:
    data = client.get("/api/").json()
    counts = {name: number for name, number in data["counts"].items() if number}
    expected = {"pending": 1, "scheduled": 1, "blocked": 1, "completed": 2, "failed": 1}
    assert counts == {**expected, "at_least": []} or counts == expected
    assert data["ended"]["ended"] == 3
    assert sum(line["ended"] for line in data["series"]) == 3
    (group,) = data["failures"]
    assert (group["task"], group["error_type"], group["number"]) == (
        "bad",
        "builtins.ValueError",
        1,
    )
    assert client.get("/api/?range=1y").status_code == 400


@pytest.mark.each_engine
def test_R2_waits_and_runs_are_shown_over_time(client: httpx.Client, jobs: dict[str, int]) -> None:
    """As figures of each task, as lines, and as maps of all tasks or of one."""
    data = client.get("/api/tasks?range=1h").json()
    lines = {line["name"]: line for line in data["tasks"]}
    rates = {name: line["failure_rate"] for name, line in lines.items()}
    assert rates == {"bad": 1.0, "first": 0.0, "second": 0.0}
    series = [line for line in client.get("/api/").json()["series"] if line["ended"]]
    for what in ("wait", "run"):
        for line in (*lines.values(), *series, client.get("/api/").json()["ended"]):
            assert 0 <= line[what]["p50"] <= line[what]["p95"]
        cells = data[what]["cells"]
        assert sum(cell["jobs"] for cell in cells) == 3
        for column in {cell["column"] for cell in cells}:
            shares = [cell["share"] for cell in cells if cell["column"] == column]
            assert sum(shares) == pytest.approx(1)
    drawn = client.get("/tasks?range=1h").text.count("</title></rect>")
    assert drawn == len(data["wait"]["cells"]) + len(data["run"]["cells"])
    one = client.get("/api/tasks?task=second").json()
    assert [cell["jobs"] for cell in one["run"]["cells"]] == [1]
    assert one["settings"]["name"] == "second"
    assert "Nothing ran in this time" in client.get("/tasks?task=nobody").text
    queues = {queue["name"]: queue for queue in client.get("/api/queues").json()["queues"]}
    assert queues["default"]["last_hour"]["wait"]["p95"] is not None
    assert queues["mail"]["last_hour"]["wait"]["p95"] is None
    assert client.get("/api/tasks?range=1y").status_code == 400


def test_R1_jobs_by_filter_and_by_search(client: httpx.Client, jobs: dict[str, int]) -> None:
    def ids(query: str) -> list[int]:
        return [job["id"] for job in client.get(f"/api/jobs?{query}").json()["jobs"]]

    assert ids("state=failed") == [jobs["bad"]]
    assert ids("queue=mail") == [jobs["pending"]]
    assert ids("state=failed,scheduled") == [jobs["later"], jobs["bad"]]
    assert client.get("/many?action=delete&all=1&state=failed,scheduled").text.count("<td") == 8
    assert (
        "<option selected>failed,scheduled</option>"
        in client.get("/jobs?state=failed,scheduled").text
    )
    assert ids(f"q={jobs['bad']}") == [jobs["bad"]]
    assert ids("q=bad") == [jobs["bad"]]
    assert ids("q=nothing") == []
    every: list[int] = []
    cursor = ""
    while True:
        page = client.get(f"/api/jobs?limit=2&cursor={cursor}").json()
        every += [job["id"] for job in page["jobs"]]
        if not (cursor := page["cursor"] or ""):
            break
    assert every == sorted(every, reverse=True)
    assert len(every) == 6
    for wrong in ("limit=x", "cursor=x", "state=strange"):
        assert client.get(f"/api/jobs?{wrong}").status_code == 400, wrong


def test_a_job_says_why(client: httpx.Client, jobs: dict[str, int]) -> None:
    why = {name: client.get(f"/api/jobs/{id}").json()["job"]["why"] for name, id in jobs.items()}
    assert why["pending"] == "no worker is running"
    assert why["later"].startswith("it is due in ")
    assert why["waiting"] == f"it waits for chain {jobs['later']} (open)"
    assert why["bad"].startswith("it failed ")
    assert html.escape(why["waiting"]) in client.get(f"/jobs/{jobs['waiting']}").text


def test_what_is_not_there_is_said(client: httpx.Client) -> None:
    answer = client.get("/api/jobs/12345")
    assert (answer.status_code, answer.json()) == (404, {"error": "there is no job 12345"})
    assert "there is no job 12345" in client.get("/jobs/12345").text
    assert client.post("/do/strange", json={}).status_code == 404
    assert client.post("/do/retry", json={"id": "x"}).status_code == 400
    assert client.post("/do/retry", json=[1]).status_code == 400
    assert client.post("/do/pause", json={}).status_code == 400
    assert client.post("/do/cancel_many", json={}).status_code == 400


@pytest.mark.each_engine
def test_K4_actions_are_seen_in_the_database(
    client: httpx.Client, app: Towline, jobs: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "towline.dashboard")

    def state(name: str) -> str:
        return str(app.job(jobs[name]).state)

    def do(action: str, **given: object) -> httpx.Response:
        return client.post(f"/do/{action}", json=given)

    assert do("retry", id=jobs["bad"]).json() == {"id": jobs["bad"], "done": 1}
    assert state("bad") == "pending"
    assert do("retry", id=jobs["bad"]).status_code == 409
    do("run", id=jobs["later"])
    assert state("later") == "pending"
    do("cancel", id=jobs["pending"])
    assert app.job(jobs["pending"]).ended_by == "dashboard"
    assert do("retry_many", state="cancelled", preview=True).json() == {"done": 1, "preview": True}
    assert state("pending") == "cancelled"
    assert do("retry_many", state="cancelled").json()["done"] == 1
    assert state("pending") == "pending"
    do("pause", queue="mail")
    assert "is paused by dashboard" in app.why(jobs["pending"])
    do("resume", queue="mail")
    assert app.paused() == []
    assert do("delete", id=jobs["chain"]).json()["done"] == 1
    assert client.get(f"/jobs/{jobs['chain']}").status_code == 404
    assert f"retry: {{'id': '{jobs['bad']}', 'done': '1'}} by dashboard" in caplog.text


def test_K4_an_action_on_many_means_the_jobs_that_are_listed(
    client: httpx.Client, app: Towline, jobs: dict[str, int]
) -> None:
    """A chain is a filter like the others; what another job needs is not deleted: 409."""
    where = {"state": "failed", "chain": str(jobs["chain"])}
    assert client.get("/api/jobs", params=where).json()["jobs"] == []
    assert client.post("/do/retry_many", json=where).json()["done"] == 0
    assert str(app.job(jobs["bad"]).state) == "failed"
    page = client.get("/jobs", params={"chain": jobs["bad"], "state": "failed"}).text
    assert f'name="chain" value="{jobs["bad"]}"' in page.split('class="bulk"')[1]
    listed = client.get("/jobs", params={"ids": f"{jobs['bad']},{jobs['later']}"}).text
    assert f'name="ids" value="{jobs["bad"]},{jobs["later"]}"' in listed.split('class="bulk"')[1]
    assert listed.count('name="pick"') == 2
    assert client.post("/do/delete", json={"id": jobs["later"]}).status_code == 409


@pytest.mark.each_engine
def test_X11_stored_text_stays_text(client: httpx.Client, app: Towline) -> None:
    """Markup is escaped, and so is what turns or moves other text, wherever it was stored."""
    strange = store_hostile(app)
    ids = strange.values()
    pages = [page.path.replace("{id:int}", str(id)) for page in PAGES for id in ids]
    picked = {"action": "cancel", "pick": ",".join(map(str, ids))}  # for the page about many
    for road in dict.fromkeys(pages):
        answer = client.get(road, params=picked)
        assert answer.status_code == 200, road
        text = re.sub('<input type="hidden"[^>]*>', "", answer.text)  # is shown to nobody
        for forbidden in ("<img src=x", "<script>alert", "\u202e", "\x1b"):
            assert forbidden not in text, (road, forbidden)
    shown = client.get(f"/jobs/{strange['bad']}").text
    for escaped in ("&lt;img src=x", "{{ 7 * 7 }}", "\\u202e", "\\x1b"):
        assert escaped in shown
    searched = client.get("/jobs?q=%3Cb%3E%E2%80%AE").text
    assert "<b>" not in searched
    assert "\u202e" not in searched.replace('value="&lt;b&gt;\u202e"', "")


def test_X11_the_stream_says_that_something_changed_and_nothing_else(
    client: httpx.Client, app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "SILENCE", 0.1)  # what is said matters here, not why
    strange = store_hostile(app)
    said: list[str] = []
    with client.stream("GET", "/live") as stream:
        app.cancel(strange["waits"], by=MARKUP)
        for line in stream.iter_lines():
            said.append(line)
            if said.count("data: changed") == 2:
                break
    assert {line for line in said if not line.startswith(": ping")} == {"data: changed", ""}


@pytest.mark.each_engine
def test_changes_are_told_and_fifty_open_pages_take_few_threads_and_connections(
    client: httpx.Client, app: Towline
) -> None:
    """Each loads a page that no other shares, all at once, and then holds its stream."""

    @app.task
    def a() -> None: ...

    a.enqueue()
    before = threading.active_count()

    async def all_of_them() -> tuple[int, int]:
        base, limits = str(client.base_url), httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=base, timeout=60, limits=limits) as own:
            ready, heard = asyncio.Semaphore(0), asyncio.Semaphore(0)

            async def watch(number: int) -> None:
                assert (await own.get(f"/jobs?limit={number + 1}")).status_code == 200
                async with own.stream("GET", "/live") as stream:
                    ready.release()
                    async for line in stream.aiter_lines():
                        if line == "data: changed":
                            heard.release()

            watchers = [asyncio.create_task(watch(number)) for number in range(50)]
            for _ in watchers:
                await ready.acquire()
            a.enqueue()
            for _ in watchers:
                await heard.acquire()
            counted = threading.active_count() - before, open_connections(app.url)
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            return counted

    threads, connections = asyncio.run(all_of_them())
    assert threads <= 45, "the server's pool of 40 and those who listen"
    assert connections <= 45


def open_connections(url: str) -> int:
    """Of this process, which is the dashboard's."""
    if url.startswith("sqlite"):
        file = url.removeprefix("sqlite:///")
        held = [
            os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")
        ]
        return held.count(os.path.realpath(file))
    with databases.connect(url) as connection:
        ((number,),) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        )
    connection.close()
    return int(number)


def closed(schema: Any) -> Any:
    """The same, where nothing may be that is not described."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: closed(each) for name, each in schema.items()}
    return {**inner, "additionalProperties": False} if "required" in schema else inner


@pytest.mark.each_engine
def test_the_api_is_described(client: httpx.Client, app: Towline, jobs: dict[str, int]) -> None:
    """The document is valid, and so is every answer by it: what it names is there and of that type,
    and nothing else."""
    from jsonschema import Draft202012Validator
    from openapi_spec_validator import validate

    ids = [*jobs.values(), *store_hostile(app).values()]
    app.pause("mail", by="ann")
    document = client.get("/api/openapi.json").json()
    validate(document)
    schemas = {"components": {"schemas": closed(document["components"]["schemas"])}}
    for road, does in document["paths"].items():
        if not road.startswith("/api"):
            continue
        taken = does["get"]["parameters"]
        needed = {each["name"]: each["example"] for each in taken if "example" in each}
        answers = does["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        for id in ids:
            params = {**needed, "pick": str(id)} if "action" in needed else needed
            answer = client.get(road.replace("{id}", str(id)), params=params)
            assert answer.status_code == 200, road
            Draft202012Validator({**closed(answers), **schemas}).validate(answer.json())
            if "{id}" not in road and "action" not in needed:
                break
    refused = client.get("/api/jobs/12345").json()
    Draft202012Validator(schemas["components"]["schemas"]["refusal"]).validate(refused)
    taken = document["paths"]["/do/delete_many"]["post"]["requestBody"]["content"]
    assert {"ids", "state", "preview"} <= {*taken["application/json"]["schema"]["properties"]}


@pytest.mark.each_engine
def test_K4_what_an_action_on_many_would_do_is_shown_first(
    client: httpx.Client, app: Towline, jobs: dict[str, int]
) -> None:
    """By state and task, with why others are passed over; then it is done to just those."""

    def look(action: str, **given: str | int) -> dict[str, object]:
        found = client.get("/api/many", params={"action": action, **given}).json()
        groups = [(g["number"], g["state"], g["skipped"]) for g in found.pop("groups")]
        return {**{name: found[name] for name in ("changed", "skipped", "complete")}, "of": groups}

    two = f"{jobs['later']},{jobs['bad']}"
    only = "only scheduled jobs can be told to run now"
    assert look("run", pick=two) == {
        "changed": 1, "skipped": 1, "complete": True,
        "of": [(1, "scheduled", None), (1, "failed", only)],
    }  # fmt: skip
    assert client.post("/do/run_many", json={"ids": [jobs["later"], jobs["bad"]]}).json() == {
        "done": 1,
        "preview": False,
    }
    assert [(line.action, line.by) for line in app.audit(job=jobs["later"])] == [
        ("run_now", "dashboard")
    ]
    both: dict[str, str | int] = {"all": 1, "task": "second", "state": "pending"}
    needed = f"job {jobs['waiting']} waits for it"
    assert look("delete", **both)["of"] == [(1, "pending", None), (1, "pending", needed)]
    done = client.post("/do/delete_many", json={"task": "second", "state": "pending"}).json()
    assert done["done"] == 1
    assert app.job(jobs["later"]).state == "pending"
    assert look("cancel", pick=jobs["bad"])["changed"] == 0
    assert "None was selected" in client.get("/many?action=retry").text
    for wrong in ("action=x", "action=retry&pick=x", "action=retry&all=1&state=x"):
        assert client.get(f"/api/many?{wrong}").status_code == 400, wrong
    assert client.post("/do/delete_many", json={"ids": []}).status_code == 400


def test_X12_who_did_what_is_in_the_history(
    client: httpx.Client, app: Towline, jobs: dict[str, int]
) -> None:
    """Of a job, of a queue, and of all together; text of others stays text (X11)."""
    client.post("/do/reveal", json={"id": jobs["pending"]})
    app.cancel(jobs["pending"], by=MARKUP)
    app.pause("mail", by="ann")
    app.resume("mail", by=MARKUP)
    told = client.get(f"/api/jobs/{jobs['pending']}").json()["job"]["audit"]
    assert [(line["done"], line["by"], line["number"]) for line in told] == [
        ("cancelled", MARKUP, 1),
        ("revealed", "dashboard", 1),
    ]
    (queue,) = (q for q in client.get("/api/queues").json()["queues"] if q["name"] == "mail")
    assert [line["action"] for line in queue["audit"]] == ["resume", "pause"]
    assert len(client.get("/api/audit").json()["lines"]) == 4
    page = client.get("/api/audit", params={"queue": "mail", "limit": 1}).json()
    older = client.get("/api/audit", params={"queue": "mail", "cursor": page["cursor"]}).json()
    assert [line["action"] for line in page["lines"] + older["lines"]] == ["resume", "pause"]
    for road in ("/audit", "/queues", f"/jobs/{jobs['pending']}"):
        text = client.get(road).text
        assert (
            html.escape(MARKUP, quote=True).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
            in text
        )
        assert "<script>alert" not in text


@pytest.mark.each_engine
def test_G11_limits_and_lanes_are_shown_and_changed_by_who_may(
    client: httpx.Client, app: Towline
) -> None:
    @app.task(queue="mail", lane="tenant")
    def send(tenant: str) -> None: ...

    for _ in range(3):
        send.enqueue(MARKUP)
    app.runner.run(app.runner.store.claim(1, ["mail"], 1))
    given = {"queue": "mail", "lane": "*", "concurrency": "2", "rate": "", "per": ""}
    assert client.post("/do/limit", json=given).json() == {"queue": "mail", "done": 1}
    client.post("/do/limit", json={"queue": "mail", "concurrency": "4"})
    data = client.get("/api/lanes?queue=mail").json()
    assert [(each["lane"], each["concurrency"]) for each in data["limits"]] == [(None, 4), ("*", 2)]
    (lane,) = data["lanes"]
    assert (lane["lane"], lane["waiting"], lane["running"]) == (MARKUP, 2, 1)
    text = client.get("/lanes?queue=mail").text
    assert MARKUP not in text
    (line,) = client.get("/api/queues").json()["queues"]
    assert (line["limit"]["running"], line["limit"]["concurrency"], line["limits"]) == (1, 4, 2)
    assert "1 of 4" in client.get("/queues").text
    assert client.post("/do/limit", json={"queue": "mail", "rate": "x"}).status_code == 400
    assert client.post("/do/limit", json={"queue": "mail", "rate": "0"}).status_code == 400
    client.post("/do/limit", json={"queue": "mail", "lane": "*"})
    assert [each.lane for each in app.limits("mail")] == [None]
    assert {each.action for each in app.audit(queue="mail")} == {"limit"}
