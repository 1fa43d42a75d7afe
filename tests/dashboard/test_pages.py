"""Pages and their data, on both engines: what is shown, what can be done, what text cannot do."""

from __future__ import annotations

import html
import threading

import httpx
import pytest

from tests.until import until
from towline import Towline


@pytest.mark.each_engine
def test_every_page_and_its_data(client: httpx.Client, jobs: dict[str, int]) -> None:
    for road in ("/", "/jobs", "/queues", "/tasks", "/workers", "/doctor"):
        assert client.get(road).status_code == 200, road
        assert client.get(f"/api{road}").headers["content-type"] == "application/json"
    for id in jobs.values():
        assert client.get(f"/jobs/{id}").status_code == 200
        assert client.get(f"/chains/{id}").status_code == 200
        assert client.get(f"/chains/{id}/graph").status_code == 200


def test_an_empty_database_says_what_to_do(client: httpx.Client) -> None:
    assert "start one with" in client.get("/").text
    assert "No job fits" in client.get("/jobs").text
    assert "one begins with its first job" in client.get("/queues").text
    assert "start one with" in client.get("/workers").text


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


def test_R1_jobs_by_filter_and_by_search(client: httpx.Client, jobs: dict[str, int]) -> None:
    def ids(query: str) -> list[int]:
        return [job["id"] for job in client.get(f"/api/jobs?{query}").json()["jobs"]]

    assert ids("state=failed") == [jobs["bad"]]
    assert ids("queue=mail") == [jobs["pending"]]
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


def test_a_chain_is_drawn_over_time(client: httpx.Client, jobs: dict[str, int]) -> None:
    data = client.get(f"/api/chains/{jobs['chain']}").json()
    assert [row["task"] for row in data["bars"]] == ["first", "second"]
    for row in data["bars"]:
        for bar in (row["waited"], *row["attempts"]):
            assert 0 <= bar["x"] <= 1000
            assert bar["width"] > 0


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
    assert client.post("/do/delete", json={"id": jobs["later"]}).status_code == 409


def test_X11_stored_text_stays_text(client: httpx.Client, jobs: dict[str, int]) -> None:
    roads = [
        f"/jobs/{jobs['bad']}",
        f"/jobs/{jobs['pending']}",
        "/jobs",
        "/",
        "/jobs?q=%3Cb%3E%E2%80%AE",
    ]
    for road in roads:
        text = client.get(road).text
        assert "<script>alert" not in text, road
        assert "<b>" not in text, road
        assert "\u202e" not in text.replace('value="&lt;b&gt;\u202e"', ""), road
        assert "\x1b" not in text, road
    shown = client.get(roads[0]).text
    assert "{{ 7 * 7 }}" in shown
    assert "\\u202e" in shown
    assert "\\x1b" in shown


def test_changes_are_told_and_many_watchers_cost_no_connection(
    client: httpx.Client, app: Towline
) -> None:
    @app.task
    def a() -> None: ...

    a.enqueue()
    heard: list[int] = []
    ready = threading.Barrier(51)

    def watch(number: int) -> None:
        with (
            httpx.Client(base_url=client.base_url, timeout=60) as own,
            own.stream("GET", "/live") as stream,
        ):
            ready.wait()
            for line in stream.iter_lines():
                if line == "data: changed":
                    heard.append(number)
                    return

    watchers = [threading.Thread(target=watch, args=(n,)) for n in range(50)]
    for watcher in watchers:
        watcher.start()
    ready.wait()
    a.enqueue()
    assert client.get("/api/jobs").status_code == 200
    until(lambda: len(set(heard)) == 50, "all have heard of it")
    for watcher in watchers:
        watcher.join()


def test_the_api_is_described(client: httpx.Client) -> None:
    from openapi_spec_validator import validate

    document = client.get("/api/openapi.json").json()
    validate(document)
    for road in document["paths"]:
        if road.startswith("/api") and "{" not in road:
            assert client.get(road).status_code == 200
