"""K4: an action does what it was asked for, or refuses: nothing that was given is passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from towline import Towline
from towline.dashboard.actions import ACTIONS

MANY = [name for name in ACTIONS if name.endswith("_many")]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Towline]:
    """What is refused is refused before any engine is asked."""
    app = Towline(f"sqlite:///{tmp_path}/x.db")
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def failed(app: Towline) -> list[int]:
    @app.task
    def a() -> None: ...

    ids = [a.enqueue().id for _ in range(3)]
    for id in ids[:2]:
        app.fail(id, "broken")
    return ids


def states(app: Towline, ids: list[int]) -> list[str]:
    return [str(app.job(id).state) for id in ids]


def refused(client: httpx.Client, road: str, **given: Any) -> str:
    answer = client.post(f"/do/{road}", json=given)
    assert answer.status_code == 400, answer.text
    error: str = answer.json()["error"]
    return error


@pytest.mark.parametrize("action", MANY)
def test_a_filter_that_does_not_exist_is_refused(
    client: httpx.Client, app: Towline, failed: list[int], action: str
) -> None:
    """Passed over it would mean more jobs than were asked for."""
    for wrong in ("stat", "since", "pick", "id", "action"):
        error = refused(client, action, **{"queue": "default", wrong: "1"})
        assert f"{action} takes no {wrong!r}" in error
        assert "state, outcome, error_type, task, queue, lane" in error
        assert "ended_since, ended_until" in error
        assert "preview" in error
    assert states(app, failed) == ["failed", "failed", "pending"]


def test_a_preview_is_true_or_false(client: httpx.Client, app: Towline, failed: list[int]) -> None:
    for wrong in ("yes", "on", "", 2, None):
        error = refused(client, "retry_many", state="failed", preview=wrong)
        assert "preview is true or false" in error
    assert states(app, failed)[:2] == ["failed", "failed"]
    for yes in (True, "true", 1, "1"):
        answer = client.post("/do/retry_many", json={"state": "failed", "preview": yes})
        assert answer.json() == {"done": 2, "preview": True}
    for no in (False, "false", 0):
        where = {"ids": [failed[0]], "preview": no}
        assert client.post("/do/retry_many", json=where).json() == {"done": 1, "preview": False}
        app.fail(failed[0], "broken")


def test_an_empty_list_is_not_no_filter(
    client: httpx.Client, app: Towline, failed: list[int]
) -> None:
    assert "'ids' is an empty list" in refused(client, "cancel_many", queue="default", ids=[])
    assert states(app, failed)[2] == "pending"


def test_a_number_that_was_mistyped_takes_no_limit_away(client: httpx.Client, app: Towline) -> None:
    app.set_limit("mail", concurrency=3)
    error = refused(client, "limit", queue="mail", concurency=5)
    assert error == "limit takes no 'concurency': it takes queue, lane, concurrency, rate, per"
    assert [each.concurrency for each in app.limits("mail")] == [3]


@pytest.mark.parametrize("action", [*ACTIONS])
def test_every_action_takes_what_it_says_and_nothing_else(
    client: httpx.Client, action: str
) -> None:
    assert f"{action} takes no 'strange'" in refused(client, action, strange="1")
    for name in ACTIONS[action].takes:
        answer = client.post(f"/do/{action}", json={name: "1"})
        assert "takes no" not in answer.text


def test_the_pages_own_forms_are_understood(
    client: httpx.Client, app: Towline, failed: list[int]
) -> None:
    """With all that they send: by the script, and without it."""
    own = {"origin": str(client.base_url).rstrip("/")}
    hidden = r'<input type="hidden" name="(\w+)" value="([^"]*)">'

    def sent(road: str, beginning: str) -> dict[str, str]:
        form = client.get(road).text.split(beginning)[1].split("</form>")[0]
        return dict(re.findall(hidden, form))

    one = sent(f"/jobs/{failed[0]}", 'data-does="/do/delete"')
    assert {*one} == {"pick", "back", "id", "action"}
    assert client.post("/do/delete", data=one, headers=own).status_code == 303
    many = sent("/many?action=retry&all=1&state=failed&back=/jobs", 'action="/do/retry_many"')
    assert client.post("/do/retry_many", data=many, headers=own).status_code == 303
    assert states(app, failed[1:]) == ["pending", "pending"]
    limit = {**sent("/lanes?queue=mail", 'action="/do/limit"'), "lane": "", "rate": "", "per": "60"}
    answer = client.post("/do/limit", data={**limit, "concurrency": "2"}, headers=own)
    assert (answer.status_code, app.limits("mail")[0].concurrency) == (303, 2)
    # What the page that asks is told besides is understood only where it says the same.
    assert "takes no 'pick'" in refused(client, "delete", id=failed[1], pick=f"{failed[2]}")
    assert "takes no 'action'" in refused(client, "cancel", id=failed[1], action="delete")


def test_the_page_about_many_has_spaces_between_its_sentences(
    client: httpx.Client, app: Towline, failed: list[int]
) -> None:
    @app.task
    def later() -> None: ...

    later.using(delay=3600).enqueue()
    for action in ("retry", "cancel", "run", "delete"):
        road = f"/many?action={action}&all=1&queue=default"
        text = client.get(road).text.split('<p class="why">')[1].split("</p>")[0]
        assert not re.search(r"\.[A-Z\d]", text), text
        assert text.count("It is done to all that fit: queue default.") == 1


def test_the_api_describes_what_actions_take(client: httpx.Client) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]

    def taken(action: str) -> dict[str, Any]:
        content = paths[f"/do/{action}"]["post"]["requestBody"]["content"]
        schema: dict[str, Any] = content["application/json"]["schema"]
        return schema

    for action, does in ACTIONS.items():
        schema = taken(action)
        assert (*schema["properties"],) == does.takes
        assert schema["additionalProperties"] is False
        for name, each in schema["properties"].items():
            assert each["type"], (action, name)
            is_filter = action.endswith("_many") and name != "preview"
            assert each["description"].startswith("Only") is is_filter, (action, name)
    limit = taken("limit")
    types = {name: each["type"] for name, each in limit["properties"].items()}
    assert types == {
        "queue": "string", "lane": "string", "concurrency": "integer", "rate": "integer",
        "per": "number",
    }  # fmt: skip
    assert limit["required"] == ["queue"]
    assert taken("retry")["required"] == ["id"]
    many = taken("delete_many")
    assert many["properties"]["preview"]["type"] == "boolean"
    assert many["properties"]["ids"]["items"] == {"type": "integer"}
    assert "required" not in many
