"""Every number leads to a list of just the jobs that it counts."""

from __future__ import annotations

import html
import re

import httpx
import pytest

from towline import Fail, Towline
from towline.operation import Op, Query, Steps

NUMBER = re.compile(
    r'<a href="(/jobs\?[^"]*)"[^>]*>(?:<span class="figure">)?'
    r"([\d\N{NARROW NO-BREAK SPACE}]+)(?=<| jobs| of )"
)
LONG_AGO = 3 * 3600  # seconds


@pytest.fixture
def history(app: Towline) -> None:
    """Two of each kind ended long ago, three an hour of each kind now; some were stored first."""

    @app.task(max_attempts=1)
    def bad(how: str) -> None:
        """Fails in every way that is told apart."""
        if how == "timeout":
            raise TimeoutError
        raise {"key": KeyError, "value": ValueError, "fail": Fail}[how]("no")

    @app.task(queue="mail")
    def good() -> None: ...

    def once(number: int) -> None:
        for how in ("key", "value", "fail"):
            app.enqueue_many([bad.call(how) for _ in range(number)])
        app.enqueue_many([good.call() for _ in range(number)])
        app.worker(concurrency=2, drain=True).run()
        for job in app.enqueue_many([bad.call("value") for _ in range(number)]):
            app.fail(job.id, "by hand")
        for job in app.enqueue_many([good.call() for _ in range(number)]):
            job.cancel()

    waits = bad.using(delay=3600).enqueue("key")
    once(2)
    age(app)
    once(3)
    app.fail(waits.id, "stored before all of them, ended after")
    app.enqueue_many([good.using(delay=3600).call() for _ in range(4)])


def age(app: Towline) -> None:
    """Let what there is have been stored and ended long ago."""

    def steps() -> Steps[None]:
        past = LONG_AGO * 1_000_000
        yield Query("old", f"UPDATE towline_job SET created_at = created_at - {past}")()
        yield Query("old", f"UPDATE towline_attempt SET ended_at = ended_at - {past}")()
        yield Query("old", f"UPDATE towline_rollup SET minute = minute - {LONG_AGO // 60}")()

    app.runner.run(Op("age", steps))


@pytest.mark.each_engine
def test_R2_a_number_and_its_list_agree(client: httpx.Client, history: None) -> None:
    """On every page with such numbers, over a time that has all of it, and one that has not."""
    numbers: dict[str, list[int]] = {}
    for page in (
        "/?range=1h", "/?range=24h", "/tasks?range=15m", "/tasks?range=7d",
        "/tasks?range=1h&queue=mail", "/queues", "/workers",
    ):  # fmt: skip
        for link, number in NUMBER.findall(client.get(page).text):
            count = int(number.replace("\N{NARROW NO-BREAK SPACE}", ""))
            numbers.setdefault(page, []).append(count)
            link = html.unescape(link)
            assert listed(client, link) == count, f"{page}: {link}"
    assert numbers["/?range=1h"][7:] == [19, 13, 4, 3, 3, 3]  # ended, failed, and each kind
    assert numbers["/?range=24h"][7:] == [31, 21, 6, 5, 5, 5]
    assert numbers["/queues"].count(13) == 1


def listed(client: httpx.Client, link: str) -> int:
    found, cursor = 0, ""
    while True:
        page = client.get(f"/api{link}&limit=7{cursor}").json()
        found += len(page["jobs"])
        if page["cursor"] is None:
            return found
        cursor = f"&cursor={page['cursor']}"


def test_a_list_by_the_end_says_so_and_can_be_widened(client: httpx.Client, history: None) -> None:
    road = "/jobs?state=failed&outcome=failed&error_type=ValueError&ended_since=2h"
    assert listed(client, road) == 3
    text = client.get(road).text
    for field in ('name="ended_since" value="2h"', 'name="error_type" value="ValueError"'):
        assert field in text, "a form sends it again, or not when it is emptied"
    assert listed(client, road.replace("2h", "1d")) == 5
    assert listed(client, road.replace("ended_since=2h", "ended_since=&ended_until=2h")) == 2
    assert listed(client, "/jobs?error_type=none&state=failed") == 6
    for wrong in ("ended_since=yesterday", "ended_until=99999999999d", "error_type=" + "x" * 501):
        assert client.get(f"/api/jobs?{wrong}").status_code == 400, wrong


def test_K4_what_ended_in_a_time_is_retried(client: httpx.Client, history: None) -> None:
    """And by a time without a zone, which is UTC, as all that is shown."""
    asked = {"state": "failed", "ended_since": "2h", "task": "bad"}
    seen = client.get("/many", params={"action": "retry", "all": 1, **asked}).text
    assert "ended since 2h" in seen
    assert client.post("/do/retry_many", json={**asked, "preview": True}).json()["done"] == 13
    assert client.post("/do/retry_many", json=asked).json()["done"] == 13
    assert listed(client, "/jobs?state=failed") == 8
    left = client.get("/api/jobs?state=failed").json()["jobs"]
    first = min(job["ended_at"] for job in left).removesuffix("Z")
    assert listed(client, f"/jobs?state=failed&ended_until={first}") == 0
    assert listed(client, f"/jobs?state=failed&ended_since={first}") == 8
