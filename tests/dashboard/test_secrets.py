"""X3, X12: what is marked as secret is shown nowhere; revealing it is an action of its own."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import httpx
import msgspec
import pytest
from playwright.sync_api import expect

from tests.dashboard.serving import served
from tests.dashboard.watching import Watched
from tests.until import LIMIT, until
from towline import Backoff, Next, Secret, Towline, context, dashboard, views
from towline.dashboard import ALL, Viewer
from towline.operation import Op, Query, Steps
from towline.secret import HIDDEN

WORD = "opensesame"
CARD = 4111111111111111


class Card(msgspec.Struct):
    number: Annotated[str, Secret]
    holder: str


@pytest.fixture
def job(app: Towline) -> int:
    @app.task
    def pay(
        cards: list[Card], pin: Annotated[str, Secret], api_token: str, amount: int
    ) -> Annotated[dict[str, Any], Secret()]:
        return {"receipt": WORD}

    stored = pay.enqueue([Card(WORD, "Ann")], WORD, WORD, 5)
    app.worker(concurrency=1, drain=True).run()
    return stored.id


def test_X12_marked_values_are_hidden_and_the_others_are_not(
    client: httpx.Client, app: Towline, job: int
) -> None:
    shown = client.get(f"/api/jobs/{job}").json()["job"]
    assert shown["arguments"] == {
        "cards": [{"number": HIDDEN, "holder": "Ann"}], "pin": HIDDEN, "api_token": HIDDEN,
        "amount": 5,
    }  # fmt: skip
    assert shown["output"] == HIDDEN
    for road in (f"/jobs/{job}", f"/chains/{job}", "/jobs", f"/api/chains/{job}", "/api/jobs"):
        assert WORD not in client.get(road).text, road
    assert WORD not in str(views.full_job_data(app, app.job(job)))
    assert str(app.job(job).output) == str({"receipt": WORD})


def test_X12_revealing_needs_its_permission_and_leaves_a_line_without_the_secret(
    client: httpx.Client, app: Towline, job: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown = client.post("/do/reveal", json={"id": job}).json()
    assert shown["arguments"]["pin"] == WORD
    assert shown["output"] == {"receipt": WORD}
    assert f"reveal: {{'id': '{job}', 'done': '1'}} by dashboard" in caplog.text
    assert WORD not in caplog.text
    modest = Viewer("ann", ALL - {"reveal"})
    with served(dashboard.asgi(app, authorize=lambda _: modest)) as other:
        assert other.post("/do/reveal", json={"id": job}).status_code == 403
        assert "data-reveal" not in other.get(f"/jobs/{job}").text


def test_X12_a_database_without_its_application_hides_by_name(app: Towline, job: int) -> None:
    other = Towline(app.url)
    shown = views.full_job_data(other, other.job(job))["arguments"]
    assert (shown["api_token"], shown["amount"]) == (HIDDEN, 5)
    named = Towline(app.url, secret_names=["AMOUNT", "pin"])
    shown = views.full_job_data(named, named.job(job))["arguments"]
    assert (shown["pin"], shown["amount"]) == (HIDDEN, HIDDEN)
    other.close()
    named.close()


# As values may look that an error repeats; the last one stands in a traceback in several lines.
HOSTILE = ["open\"sesame'\\", "Zürich & <b>Söhne</b>", "\u202esesame\x1b[31m", "many\nlines of it"]


@pytest.fixture
def broken(app: Towline) -> dict[str, int]:
    """Jobs whose errors repeat their secrets; and who waited for one, alone and in a group."""

    class Refused(Exception): ...

    @app.task(max_attempts=2, backoff=Backoff(first=0))
    def charge(words: Annotated[list[str], Secret], card: Annotated[int, Secret]) -> None:
        context().progress(0.5, f"charging {card}")
        raise Refused(f"{card} for {words[0]}", words, json.dumps(words), {"card": card})

    @app.task
    def begin() -> Next[None]:
        return charge.then(HOSTILE, CARD)

    @app.task
    def after() -> None: ...

    ids = {"job": charge.enqueue(HOSTILE, CARD).id, "chain": begin.enqueue().id}
    ids["waited"] = after.using(after=[ids["job"], ids["chain"]]).enqueue().id
    app.worker(concurrency=1, drain=True).run()
    return ids


def test_X12_an_error_is_shown_without_the_secrets_that_it_repeats(
    client: httpx.Client, app: Towline, broken: dict[str, int]
) -> None:
    """By pages and API: of the job, in lists, where it was waited for. The store has it all."""
    last = app.chain(broken["chain"]).last
    assert last is not None
    roads = ["/", "/jobs", "/jobs?state=failed", f"/groups/{broken['waited']}"]
    roads += [f"/jobs/{id}" for id in (*broken.values(), last.id)]
    for id in broken.values():
        roads += [f"/chains/{id}", f"/chains/{id}/graph"]
    for road in roads:
        for text in (client.get(road).text, str(client.get(f"/api{road}").json())):
            for word in (str(CARD), "sesame", "Söhne", "S\\xf6hne", "lines of it"):
                assert word not in text, (road, word)
    shown = client.get(f"/api/jobs/{broken['job']}").json()["job"]
    assert "Refused: ('*** for ***', ['***', '***', '***', '***']," in shown["error"]
    assert shown["progress"]["text"] == "charging ***"
    assert [each["error"].count("***") > 9 for each in shown["attempts"]] == [True, True]
    waited = client.get(f"/api/jobs/{broken['waited']}").json()["job"]["blockers"]
    assert [each["error"].count("*** for ***") for each in waited] == [1, 1]
    kept = app.job(broken["job"]).error
    assert kept is not None
    assert str(CARD) in kept


def test_X12_revealed_errors_have_them(
    client: httpx.Client, app: Towline, broken: dict[str, int]
) -> None:
    found = client.post("/do/reveal", json={"id": broken["job"]}).json()
    assert [f"{CARD} for " in error for error in found["errors"]] == [True, True]
    assert found["errors"] == [attempt.error for attempt in app.attempts(broken["job"])]


def test_X12_no_task_reads_arguments_for_an_error_that_is_not_there(
    client: httpx.Client, app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def fine(n: int) -> None: ...

    app.enqueue_many([fine.call(n) for n in range(5)])
    app.worker(concurrency=1, drain=True).run()
    monkeypatch.setattr("towline.app.shown.stored", None)  # which would be called
    assert len(client.get("/api/jobs").json()["jobs"]) == 5


def test_X12_what_a_worker_tells_of_an_error_has_none(
    app: Towline, caplog: pytest.LogCaptureFixture
) -> None:
    """Also at debug, where the traceback is logged."""
    caplog.set_level(logging.DEBUG)
    told: list[str | None] = []

    @app.task(max_attempts=1)
    def charge(words: Annotated[list[str], Secret], card: Annotated[int, Secret]) -> None:
        raise ValueError(f"{card} for {words[0]}", words)

    charge.enqueue(HOSTILE, CARD)
    app.on("attempt.ended")(lambda event: told.append(event.error))
    app.worker(concurrency=1, drain=True, error_text=True).run()
    until(lambda: len(told) == 1, "it is told")
    assert "ValueError: ('*** for ***', [" in caplog.text
    for word in (str(CARD), "sesame", "Söhne", "lines of it"):
        assert word not in caplog.text + str(told)


def test_X12_nothing_is_told_of_an_error_whose_secrets_cannot_be_looked_for(
    app: Towline, caplog: pytest.LogCaptureFixture
) -> None:
    """Another hand stored lists that lie too deep in one another. What was claimed with it runs."""
    caplog.set_level(logging.INFO)

    @app.task(max_attempts=1)
    def charge(deep: Any, word: Annotated[str, Secret]) -> None:
        raise ValueError(word)

    @app.task
    def fine() -> None: ...

    def steps() -> Steps[None]:
        deep = "[" * 800 + "]" * 800
        text = f"UPDATE towline_job SET arguments = replace(arguments, ':1', ':{deep}')"
        yield Query("deep", text)()

    charge.enqueue(1, WORD)
    app.runner.run(Op("deepen", steps))
    others = [fine.enqueue() for _ in range(3)]
    with app.worker(concurrency=1, error_text=True):
        assert [other.result(LIMIT) for other in others] == [None] * 3
    assert app.runner.events.flush(LIMIT)
    assert "(charge): ValueError; the job has failed" in caplog.text
    assert "cannot go on" not in caplog.text
    assert WORD not in caplog.text


def test_X12_revealed_errors_stand_on_the_page(watched: Watched, broken: dict[str, int]) -> None:
    """As text in lines, in place of those that hide something."""
    page = watched.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"/jobs/{broken['job']}")
    errors = page.locator("[data-value=errors]")
    expect(errors).to_have_count(2)
    expect(errors.first).to_contain_text("*** for ***")
    expect(errors.first).not_to_contain_text(str(CARD))
    page.get_by_role("button", name="reveal").click()
    for each in errors.all():
        expect(each).to_contain_text(f"{CARD} for open")
        expect(each).to_contain_text("Traceback (most recent call last):\n")
    assert "\u202e" not in (errors.first.text_content() or "")
    assert watched.problems == []
