"""X3, X12: what is marked as secret is shown nowhere; revealing it is an action of its own."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import httpx
import msgspec
import pytest

from tests.dashboard.serving import served
from towline import Secret, Towline, dashboard, views
from towline.dashboard import ALL, Viewer
from towline.secret import HIDDEN

WORD = "opensesame"


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
