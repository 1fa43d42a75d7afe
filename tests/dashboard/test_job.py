"""The pages of a job and of a chain: over time, with types, and as a call to copy."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import httpx
import pytest

from towline import Backoff, Secret, Towline
from towline.app.handles import Job
from towline.dashboard.timeline import timeline
from towline.dashboard.values import copies, typed
from towline.views import full_job_data


def at(second: float) -> str:
    return f"2027-01-15T08:00:{second:09.6f}Z"


def attempt(number: int, outcome: str | None, start: float, end: float | None) -> dict[str, Any]:
    ended = None if end is None else at(end)
    return {"number": number, "outcome": outcome, "started_at": at(start), "ended_at": ended}


def job_at(state: str, *attempts: dict[str, Any], ended: float | None = None) -> dict[str, Any]:
    return {
        "id": 1, "task": "a", "state": state, "created_at": at(0), "attempts": list(attempts),
        "ended_at": None if ended is None else at(ended),
    }  # fmt: skip


def test_bars_are_waits_runs_and_what_lies_between() -> None:
    job = job_at("completed", attempt(1, "failed", 1, 2), attempt(2, "completed", 6, 10), ended=10)
    (row,) = timeline([job], at(99))["rows"]
    assert [(b["kind"], b["attempt"], b["x"], b["width"]) for b in row["bars"]] == [
        ("waited", 1, 0, 100),
        ("failed", 1, 100, 100),
        ("back-off", 2, 200, 400),
        ("completed", 2, 600, 400),
    ]


@pytest.mark.parametrize(
    ("job", "last"),
    [
        (job_at("pending"), ("waited", None, 20)),
        (job_at("scheduled", attempt(1, "timeout", 5, 10)), ("back-off", None, 10)),
        (job_at("pending", attempt(1, "lost", 5, 10)), ("waited", None, 10)),
        (job_at("running", attempt(1, None, 5, None)), ("running", 1, 15)),
        (job_at("cancelled", ended=5), None),
    ],
)
def test_what_goes_on_lasts_until_now(job: dict[str, Any], last: tuple[str, int, float]) -> None:
    (row,) = timeline([job], at(20))["rows"]
    found = [(bar["kind"], bar["attempt"], bar["seconds"]) for bar in row["bars"]]
    assert found[-1:] == ([last] if last else [])


def test_nothing_is_too_thin_to_be_seen_or_beyond_the_edge() -> None:
    job = job_at("failed", attempt(1, "failed", 50, 50.000001), ended=50.000001)
    for bar in timeline([job], at(59))["rows"][0]["bars"]:
        assert bar["width"] >= 3
        assert 0 <= bar["x"] <= 1000 - bar["width"]


@pytest.mark.each_engine
def test_a_job_and_its_chain_over_time(client: httpx.Client, app: Towline) -> None:
    """The attempts of all jobs of a chain are read at once, the running one with them."""

    @app.task(max_attempts=2, backoff=Backoff(first=0.001, jitter=0))
    def fails() -> None:
        raise ValueError("no")

    id = fails.enqueue().id
    app.worker(concurrency=1, drain=True).run()
    job = client.get(f"/api/jobs/{id}").json()
    kinds = ["waited", "failed", "back-off", "failed"]
    assert [bar["kind"] for bar in job["timeline"]["rows"][0]["bars"]] == kinds
    chain = client.get(f"/api/chains/{id}").json()
    assert chain["timeline"] == job["timeline"]
    assert chain["jobs"][0]["attempts"] == job["job"]["attempts"]
    assert client.get(f"/jobs/{id}").text.count("<summary>ValueError: no</summary>") == 2


@pytest.fixture
def calls(app: Towline) -> dict[str, Job[Any]]:
    @app.task
    def plain(order: int, tags: list[str] | None = None) -> dict[str, int]:
        return {"order": order}

    @app.task(queue="mail", priority=3)
    def starred(first: int, /, second: str, *rest: float, **options: bool) -> None: ...

    @app.task(name="shop.pay now")
    def pay(card: Annotated[str, Secret], *more: Annotated[str, Secret]) -> None: ...

    return {
        "plain": plain.using(queue="mail", key="k").enqueue(7, ["a"]),
        "starred": starred.enqueue(1, "it's", 2.5, 3.5, fast=True),
        "pay": pay.enqueue("opensesame", "x"),
    }


def test_values_have_the_types_of_the_signature(
    client: httpx.Client, app: Towline, calls: dict[str, Job[Any]]
) -> None:
    def types(name: str) -> list[list[str]]:
        found = client.get(f"/api/jobs/{calls[name].id}").json()["typed"]
        return [[each["name"], each["type"]] for each in (*found["arguments"], found["output"])]

    assert types("plain") == [
        ["order", "int"],
        ["tags", "list[str] | None"],
        ["", "dict[str, int]"],
    ]
    assert types("pay")[:2] == [["card", "str"], ["*more", "list[str]"]]


def test_X12_a_copy_is_a_call_that_can_be_made_again_with_its_secrets_hidden(
    app: Towline, calls: dict[str, Job[Any]]
) -> None:
    made = {name: copies(app, full_job_data(app, job)) for name, job in calls.items()}
    assert [made[name].get("python") for name in made] == [
        "plain.using(queue='mail').enqueue(order=7, tags=['a'])",
        'starred.enqueue(1, "it\'s", 2.5, 3.5, fast=True)',
        "pay.enqueue('***', '***')",
    ]
    words = {name: shlex.split(made[name]["command"])[3:] for name in made}
    args = '{"order": 7, "tags": ["a"]}'
    assert words["plain"] == ["plain", "--args", args, "--queue", "mail"]
    args = '[1, "it\'s", 2.5, 3.5]'
    assert words["starred"] == ["starred", "--args", args, "-p", "fast=true"]
    assert "opensesame" not in str(made)


def test_of_an_unknown_task_json_says_the_types(app: Towline, calls: dict[str, Job[Any]]) -> None:
    other = Towline(app.url)
    job = full_job_data(other, other.job(calls["plain"].id))
    assert [each["type"] for each in typed(other, job)["arguments"]] == ["number", "array of 1"]
    assert copies(other, job)["python"] == "plain.using(queue='mail').enqueue(order=7, tags=['a'])"
    other.close()
