"""The page of schedules: what each shows, what can be done to it, by whom."""

from __future__ import annotations

import httpx
import pytest

from tests.dashboard.conftest import MARKUP
from tests.dashboard.serving import served
from towline import Cron, Towline, dashboard
from towline.app.schedules import Schedule
from towline.dashboard import Viewer


@pytest.fixture
def schedule(app: Towline) -> Schedule:
    @app.task(queue="reports")
    def report(region: str) -> None: ...

    cron = Cron("30 7 * * mon-fri", tz="Europe/Berlin", jitter=60, overlap="queue")
    return app.set_schedule("eu", report.call("eu"), cron)


@pytest.mark.each_engine
def test_a_schedule_is_shown_with_its_runs_and_its_next_ticks(
    client: httpx.Client, app: Towline, schedule: Schedule
) -> None:
    job = schedule.run()
    app.set_schedule(MARKUP, app.registry["report"].call("x"), "@daily")
    data = client.get("/api/schedules").json()
    assert [each["name"] for each in data["schedules"]] == sorted(["eu", MARKUP])
    (eu,) = client.get("/api/schedules?name=eu").json()["schedules"]
    assert [run["id"] for run in eu["runs"]] == [job.id]
    assert len(eu["upcoming"]) == 5
    page = client.get("/schedules?name=eu").text
    for text in (
        "At 07:30 on Monday through Friday, Europe/Berlin", "made at run time", "up to 1 min",
        "T07:30:00+0", f"/jobs/{job.id}", "30 7 * * mon-fri",
    ):  # fmt: skip
        assert text in page
    assert "<script>alert" not in client.get("/schedules").text
    shown = client.get(f"/jobs/{job.id}").text
    assert "/schedules?name=eu" in shown
    assert "run by hand" in shown
    assert client.get("/api/jobs?schedule=eu").json()["jobs"][0]["id"] == job.id
    assert client.get("/schedules?name=none").status_code == 404
    assert client.get("/api/schedules?limit=1").json()["cursor"] is not None


@pytest.mark.each_engine
def test_what_can_be_done_to_a_schedule(
    client: httpx.Client, app: Towline, schedule: Schedule
) -> None:
    def do(action: str) -> httpx.Response:
        return client.post(f"/do/{action}", json={"schedule": "eu"})

    assert do("pause_schedule").json() == {"schedule": "eu", "done": 1}
    assert schedule.refresh().paused
    assert "paused" in client.get("/schedules").text
    assert do("resume_schedule").status_code == 200
    id = do("run_schedule").json()["id"]
    assert app.job(id).schedule == "eu"
    assert do("delete_schedule").status_code == 200
    assert do("pause_schedule").status_code == 404
    assert client.post("/do/run_schedule", json={}).status_code == 400
    actions = [line.action for line in app.audit()]
    assert actions == ["delete_schedule", "run_schedule", "resume_schedule", "pause_schedule"]
    assert "schedule eu" in client.get("/audit").text


def test_who_may_not_is_shown_no_button_and_refused(app: Towline, schedule: Schedule) -> None:
    site = dashboard.asgi(app, authorize=lambda _: Viewer("ann", frozenset({"run"})))
    with served(site) as client:
        page = client.get("/schedules?name=eu").text
        assert "run_schedule" in page
        assert "pause_schedule" not in page
        assert "delete_schedule" not in page
        refused = client.post("/do/pause_schedule", json={"schedule": "eu"})
        assert refused.status_code == 403
