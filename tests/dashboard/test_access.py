"""X2, X8, X9, X10: who is answered, who may act, and what a browser is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

from tests.dashboard.serving import served
from towline import Towline, dashboard
from towline.dashboard import Viewer
from towline.dashboard.actions import ACTIONS
from towline.dashboard.pages import PAGES

TOKEN = "a token of enough length"
ROADS = ["/", "/jobs", "/queues", "/api/", "/api/jobs", "/live", "/api/openapi.json"]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Towline]:
    """Access has nothing to do with the engine."""
    app = Towline(f"sqlite:///{tmp_path}/x.db")
    app.migrate()
    yield app
    app.close()


@pytest.fixture
def failed(app: Towline) -> int:
    @app.task
    def a() -> None: ...

    job = a.enqueue()
    app.fail(job.id, "broken")
    return job.id


def test_X8_without_a_token_only_this_machine_is_answered_under_its_own_name(
    client: httpx.Client,
) -> None:
    port = client.base_url.port
    for name in ("localhost", "127.0.0.1", "[::1]"):
        assert client.get("/", headers={"host": f"{name}:{port}"}).status_code == 200
    for name in ("evil.example", "127.0.0.1.evil.example", "", "localhost.evil", "@"):
        answer = client.get("/", headers={"host": name})
        assert answer.status_code in (400, 403), name
        if answer.status_code == 403:
            assert "token=…" in answer.json()["error"]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("localhost", 200),
        ("LocalHost:8383", 200),
        ("127.0.0.1", 200),
        ("[::1]:8383", 200),
        ("192.168.7.5:8383", 200),  # of this machine in some network: no site's name is a number
        ("[2001:db8::5]", 200),
        ("BOX.example.com:8383", 200),
        ("box", 200),
        ("evil.example", 421),
        ("box.evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("192.168.7.5.nip.example", 421),
        ("example.com", 421),
        ("0x7f.1", 421),  # a browser writes it as four numbers
        ("[::1", 421),
        ("@", 421),
    ],
)
def test_X10_with_a_token_it_is_asked_under_a_name_of_its_own(
    app: Towline, monkeypatch: pytest.MonkeyPatch, name: str, status: int
) -> None:
    """Whether the token comes along or not: a name that another site has made point here."""
    monkeypatch.setattr("socket.gethostname", lambda: "Box.example.com")
    with served(dashboard.asgi(app, token=TOKEN)) as client:
        for token in (TOKEN, "no"):
            headers = {"host": name, "authorization": f"Bearer {token}"}
            for road in ("/api/jobs", "/login", "/static/towline.js"):
                answer = client.get(road, headers=headers)
                if status == 421:
                    assert answer.status_code in (400, 421), road
                    assert "--name" in answer.text or answer.status_code == 400
                elif road == "/api/jobs":
                    assert answer.status_code == (200 if token == TOKEN else 401)
                else:
                    assert answer.status_code == 200, road


@pytest.mark.parametrize("token", [None, TOKEN])
def test_X10_where_names_are_said_those_only_are_answered(app: Towline, token: str | None) -> None:
    with served(dashboard.asgi(app, token=token, hosts=["Jobs.Example"])) as client:
        headers = {"authorization": f"Bearer {token}"}
        for name, status in (
            ("jobs.example:443", 200),
            ("127.0.0.1", 421),
            ("x.jobs.example", 421),
        ):
            answer = client.get("/api/jobs", headers={**headers, "host": name})
            assert answer.status_code == status, name
        # X8: a name is no guard.
        passed_on = {**headers, "host": "jobs.example", "x-forwarded-for": "192.0.2.7"}
        answer = client.get("/api/jobs", headers=passed_on)
        assert answer.status_code == (403 if token is None else 200)


@pytest.mark.parametrize("road", ROADS)
def test_X8_with_a_token_nothing_is_shown_without_it(app: Towline, road: str) -> None:
    with served(dashboard.asgi(app, token=TOKEN)) as client:
        answer = client.get(road)
        if road.startswith(("/api", "/live")):
            assert answer.status_code == 401
        else:
            assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        for wrong in (
            "Bearer no",
            f"Basic {TOKEN}",
            f"Bearer {TOKEN}x",
            "Bearer",
            f"Bearer {TOKEN[:-1]}",
        ):
            assert client.get("/api/jobs", headers={"authorization": wrong}).status_code == 401
        right = {"authorization": f"Bearer {TOKEN}"}
        if road != "/live":  # which never ends
            assert client.get(road, headers=right).status_code == 200


def test_X8_a_browser_logs_in_with_the_token_and_keeps_something_else(app: Towline) -> None:
    with served(dashboard.asgi(app, token=TOKEN)) as client:
        origin = {"origin": str(client.base_url).rstrip("/")}
        assert client.post("/login", data={"token": "wrong"}, headers=origin).status_code == 403
        answer = client.post("/login", data={"token": TOKEN}, headers=origin)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "httponly" in cookie.lower()
        assert "samesite=strict" in cookie.lower()
        assert TOKEN not in cookie
        assert client.get("/").status_code == 200
        client.post("/logout", headers=origin)
        assert client.get("/").status_code == 303


def test_X8_without_a_token_nobody_is_answered_through_a_proxy(client: httpx.Client) -> None:
    """It sits on this machine and speaks for another one."""
    for header in ("x-forwarded-for", "X-Real-IP", "Forwarded"):
        assert client.get("/api/jobs", headers={header: "127.0.0.1"}).status_code == 403


def test_X8_tokens_are_compared_in_constant_time(
    app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(given: bytes, own: bytes) -> bool:
        compared.append((given, own))
        return given == own

    monkeypatch.setattr("hmac.compare_digest", compare)
    with served(dashboard.asgi(app, token=TOKEN)) as client:
        client.get("/api/jobs", headers={"authorization": "Bearer no"})
        client.get("/api/jobs", headers={"cookie": "towline_dashboard=no"})
    assert [given for given, _ in compared] == [b"no", b"no"]


def test_X8_the_function_of_the_host_may_wait_for_a_database(app: Towline) -> None:
    """It is not called on the event loop; what it raises lets nobody in."""

    def authorize(request: Request) -> bool:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        if request.headers.get("x-user") is None:
            raise LookupError("no such table: session")
        return True

    with served(dashboard.asgi(app, authorize=authorize)) as client:
        assert client.get("/", headers={"x-user": "ann"}).status_code == 200
        answer = client.get("/")
        assert (answer.status_code, "session" in answer.text) == (500, False)


def test_X8_a_token_is_no_short_word(app: Towline) -> None:
    with pytest.raises(ValueError, match="at least 16 characters"):
        dashboard.asgi(app, token="secret")


@pytest.mark.parametrize("token", ["", " ", " " * 20])
def test_X8_a_token_that_is_empty_is_not_no_token(
    app: Towline, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    """Such as of a variable that is not set: nothing would guard the dashboard."""
    with pytest.raises(ValueError, match=r"is empty: .* at least 16 characters"):
        dashboard.asgi(app, token=token)
    monkeypatch.setenv("TOWLINE_DASHBOARD_TOKEN", TOKEN)
    with pytest.raises(ValueError, match="is empty"):
        dashboard.asgi(app, token=token)


def test_X8_the_token_may_come_from_the_environment(
    app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOWLINE_DASHBOARD_TOKEN", TOKEN)
    with served(dashboard.asgi(app)) as client:
        assert client.get("/api/jobs").status_code == 401


def test_X8_the_token_is_in_no_log(app: Towline, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), served(dashboard.asgi(app, token=TOKEN)) as client:
        origin = {"origin": str(client.base_url).rstrip("/")}
        client.post("/login", data={"token": TOKEN}, headers=origin)
        client.get("/api/jobs", headers={"authorization": f"Bearer {TOKEN}"})
        client.get("/api/jobs", headers={"authorization": f"Bearer {TOKEN}x"})
    assert TOKEN not in caplog.text


@pytest.mark.parametrize("awaits", [False, True])
def test_X8_the_host_application_decides(app: Towline, awaits: bool) -> None:
    def authorize(request: Request) -> Viewer | None:
        name = request.headers.get("x-user")
        return Viewer(name, frozenset({"retry"})) if name else None

    async def aauthorize(request: Request) -> Viewer | None:
        return authorize(request)

    site = dashboard.asgi(app, authorize=aauthorize if awaits else authorize)
    with served(site) as client:
        assert client.get("/").status_code == 403
        answer = client.get("/", headers={"x-user": "ann", "host": "shop.example"})
        assert "you are ann" in answer.text


def test_X9_each_action_asks_for_its_own_permission(app: Towline, failed: int) -> None:
    site = dashboard.asgi(app, authorize=lambda _: Viewer("ann", frozenset({"pause"})))
    alone = ("retry", "cancel", "run", "delete")
    with served(site) as client:
        for action in alone:
            road = f"/many?action={action}&pick={failed}"
            assert client.get(f"/api{road}").status_code == 403
            assert client.get(road).status_code == 403
        assert 'name="pick"' not in client.get("/jobs").text
        for action in (*alone, *(f"{action}_many" for action in alone)):
            answer = client.post(f"/do/{action}", json={"id": failed, "state": "failed"})
            assert answer.status_code == 403, action
        assert str(app.job(failed).state) == "failed"
        assert client.post("/do/pause", json={"queue": "mail"}).status_code == 200
        assert app.paused() == ["mail"]
        assert "do/retry" not in client.get(f"/jobs/{failed}").text


def test_X9_read_only_has_no_actions_and_refuses_them(app: Towline, failed: int) -> None:
    with served(dashboard.asgi(app, token=TOKEN, read_only=True)) as client:
        client.headers["authorization"] = f"Bearer {TOKEN}"
        for road in ("/", "/jobs?state=failed", f"/jobs/{failed}", "/queues"):
            text = client.get(road).text
            assert "/do/" not in text
            assert 'name="pick"' not in text
        for action in ACTIONS:
            given = {"id": failed, "queue": "mail", "state": "failed"}
            assert client.post(f"/do/{action}", json=given).status_code == 403, action
    assert str(app.job(failed).state) == "failed"
    assert app.paused() == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({}, 403),  # a form that says nothing
        ({"sec-fetch-site": "same-origin"}, 303),
        ({"origin": "OWN"}, 303),
    ],
)
def test_X10_a_form_of_another_site_changes_nothing(
    client: httpx.Client, app: Towline, headers: dict[str, str], status: int
) -> None:
    own = str(client.base_url).rstrip("/")
    headers = {name: own if value == "OWN" else value for name, value in headers.items()}
    answer = client.post("/do/pause", data={"queue": "mail"}, headers=headers)
    assert answer.status_code == status
    assert app.paused() == (["mail"] if status == 303 else [])


def test_X10_every_answer_asks_under_which_name(client: httpx.Client) -> None:
    roads = [*ROADS, "/static/towline.js", "/do/retry", "/login", "/logout"]
    for road in roads:
        for method in ("GET", "POST"):
            answer = client.request(method, road, headers={"host": "evil.example"})
            assert answer.status_code in (403, 405), road


def test_what_a_button_could_not_do_is_said_on_a_page(client: httpx.Client, failed: int) -> None:
    own = {"origin": str(client.base_url).rstrip("/")}
    answer = client.post("/do/cancel", data={"id": failed}, headers=own)
    assert (answer.status_code, "<h1>Not done</h1>" in answer.text) == (409, True)
    assert "hx-get" not in answer.text, "it cannot be fetched again"
    assert client.post("/do/cancel", json={"id": failed}).json()["error"]
    for road, title in (("/jobs/12345", "Not here"), ("/jobs?state=x", "Not understood")):
        assert f"<h1>{title}</h1>" in client.get(road).text


def test_X10_after_an_action_the_way_back_stays_here(client: httpx.Client) -> None:
    own = {"origin": str(client.base_url).rstrip("/")}
    for back, to in (("/queues", "/queues"), ("//e.x", "/"), ("/\\e.x", "/"), ("https://e.x", "/")):
        page = client.get("/many", params={"action": "retry", "back": back}).text
        assert f'href="{to if to != "/" else "/jobs"}"' in page.split("None was selected")[1]
        data = {"queue": "mail", "back": back}
        assert client.post("/do/pause", data=data, headers=own).headers["location"] == to


@pytest.mark.parametrize("road", [page.path for page in PAGES if "{" not in page.path])
def test_X10_what_a_browser_may_do_is_said_with_every_answer(
    client: httpx.Client, road: str
) -> None:
    for answer in (client.get(road), client.get(f"/api{road}"), client.get("/nothing")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_X10_no_page_has_script_or_style_of_its_own_or_asks_elsewhere(
    client: httpx.Client, failed: int
) -> None:
    for road in ("/", "/jobs", f"/jobs/{failed}", f"/chains/{failed}", "/queues", "/tasks"):
        text = client.get(road).text
        for forbidden in (" style=", "<style", " onclick", "javascript:", "http://", "https://"):
            assert forbidden not in text, (road, forbidden)
        assert text.count("<script ") == text.count('<script src="/static/')


def test_under_a_prefix_every_link_stays_below_it(app: Towline, failed: int) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    host = Starlette(routes=[Mount("/admin/towline", dashboard.asgi(app))])
    with served(host, "/admin/towline") as client:
        for road in ("/", "/jobs", f"/jobs/{failed}", "/queues", "/nothing"):
            text = client.get(road).text
            links = [part.split('"')[0] for part in text.split(' href="')[1:]]
            links += [part.split('"')[0] for part in text.split(' action="')[1:]]
            links += [part.split('"')[0] for part in text.split(' src="')[1:]]
            away = [x for x in links if not x.startswith(("/admin/towline/", "#", "?"))]
            assert (bool(links), away) == (True, []), road
        own = {"origin": f"http://127.0.0.1:{client.base_url.port}"}
        answer = client.post("/do/retry", data={"id": failed, "back": "/jobs"}, headers=own)
        assert answer.headers["location"] == "/admin/towline/jobs"
    assert str(app.job(failed).state) == "pending"
