"""The page of a group: how far it is, what failed, and its end."""

from __future__ import annotations

import html
from typing import Any

import httpx
import pytest

from tests.dashboard.conftest import HOSTILE
from towline import Towline
from towline.app.group import Group


@pytest.mark.each_engine
def test_F2_a_group_is_shown_and_cancelled(client: httpx.Client, app: Towline) -> None:
    @app.task
    def part(n: int) -> int:
        return n

    group = app.enqueue_group([part.call(n) for n in range(5)])
    ids = [blocker.chain_id for blocker in app.blockers(group.id)]
    app.complete(ids[0], 1)
    app.fail(ids[3], HOSTILE)
    data = client.get(f"/api/groups/{group.id}").json()
    assert (data["group"]["ended"], data["group"]["total"], data["group"]["failed"]) == (2, 5, 1)
    assert [member["position"] for member in data["group"]["members"]] == [3, 0, 1, 2, 4]
    page = client.get(f"/groups/{group.id}").text
    assert "2 of 5 ended" in page
    assert 'max="5" value="2"' in page
    assert "<script>alert" not in page
    assert "onerror=document" in html.unescape(page)
    assert "cancel group" in page
    assert f"/groups/{group.id}" in client.get(f"/jobs/{group.id}").text
    done = client.post("/do/cancel_group", json={"id": group.id})
    assert (done.status_code, done.json()["done"]) == (200, 3)
    assert (group.refresh().state, group.ended, group.failed()) == ("cancelled", 5, 4)
    assert "cancel group" not in client.get(f"/groups/{group.id}").text
    assert client.get("/groups/999").status_code == 404


def test_F2_an_empty_group_is_whole(client: httpx.Client, app: Towline) -> None:
    group: Group[Any] = app.enqueue_group([])
    page = client.get(f"/groups/{group.id}").text
    assert "0 of 0 ended" in page
    assert "It has none." in page


def test_the_built_in_task_is_nobodys(client: httpx.Client, app: Towline) -> None:
    @app.task
    def part(n: int) -> int:
        return n

    app.enqueue_group([part.call(1)])
    app.worker(drain=True).run()
    assert [line["name"] for line in client.get("/api/tasks").json()["tasks"]] == ["part"]
