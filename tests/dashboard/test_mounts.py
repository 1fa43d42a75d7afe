"""The dashboard inside FastAPI, Django and Flask, as the examples have it."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from werkzeug.serving import make_server

from tests.dashboard.serving import served

PREFIX = "/admin/jobs"


@pytest.fixture
def example(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """The module of an example, on a database of its own."""
    monkeypatch.setenv("TOWLINE_URL", f"sqlite:///{tmp_path}/x.db")
    module = importlib.import_module(f"examples.dashboard.{request.param}")
    module.app.use(f"sqlite:///{tmp_path}/x.db")
    module.app.migrate()
    yield module
    module.app.close()


def looks_right(client: httpx.Client) -> None:
    """Pages, files and actions, all below the prefix."""
    page = client.get(f"{PREFIX}/")
    assert page.status_code == 200
    links = [part.split('"')[0] for part in page.text.split(' href="')[1:]]
    assert [link for link in links if not link.startswith((f"{PREFIX}/", "#", "?"))] == []
    style = next(link for link in links if "towline.css" in link)
    assert client.get(style).headers["content-type"].startswith("text/css")
    assert client.get(f"{PREFIX}/api/queues").json()["queues"] == []
    own = {"origin": f"http://127.0.0.1:{client.base_url.port}"}
    data = {"queue": "mail", "back": "/queues"}
    answer = client.post(f"{PREFIX}/do/pause", data=data, headers=own)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{PREFIX}/queues")
    with client.stream("GET", f"{PREFIX}/live") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("example", ["with_fastapi"], indirect=True)
def test_in_fastapi_for_its_own_people(example: Any) -> None:
    with served(example.api) as client:
        assert client.get(f"{PREFIX}/").status_code == 403
        client.cookies["session"] = example.STAFF["ann"]
        looks_right(client)
        assert example.app.paused() == ["mail"]
        assert "you are ann" in client.get(f"{PREFIX}/").text
        job = client.post("/greet/you").json()["job"]
        assert client.get(f"{PREFIX}/api/jobs/{job}").json()["job"]["task"] == "greet"
        assert client.post(f"{PREFIX}/do/delete", json={"id": job}).status_code == 403


@pytest.mark.parametrize("example", ["with_django"], indirect=True)
def test_beside_a_django_project(example: Any) -> None:
    with served(example.application) as client:
        assert client.get("/").text == "a page of the project"
        looks_right(client)
    assert example.app.paused() == ["mail"]


@pytest.mark.parametrize("example", ["with_flask"], indirect=True)
def test_in_flask(example: Any) -> None:
    server = make_server("127.0.0.1", 0, example.web, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as client:
            assert client.get("/").text == "a page of the application"
            looks_right(client)
    finally:
        server.shutdown()
        thread.join()
    assert example.app.paused() == ["mail"]
