"""The dashboard inside FastAPI, Django and Flask, as the examples have it."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster import free_port
from tests.dashboard.serving import served
from tests.kit import ROOT
from tests.until import until
from towline import Towline

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


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["uvicorn", "examples.dashboard.with_django:application"], "a page of the project"),
        (["flask", "--app", "examples.dashboard.with_flask", "run"], "a page of the application"),
    ],
    ids=["Django", "Flask"],
)
def test_beside_a_project(tmp_path: Path, command: list[str], says: str) -> None:
    """In a process of its own: a process has one Django project, and what a2wsgi starts stays."""
    url, port = f"sqlite:///{tmp_path}/x.db", free_port()
    app = Towline(url)
    app.migrate()
    server = subprocess.Popen(
        [sys.executable, "-m", *command, "--port", str(port)],
        env={**os.environ, "TOWLINE_URL": url, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            until(lambda: is_there(client), "the server answers")
            assert client.get("/").text == says
            looks_right(client)
        assert app.paused() == ["mail"]
    finally:
        server.kill()
        server.wait()
        app.close()


def is_there(client: httpx.Client) -> bool:
    try:
        return client.get("/").status_code == 200
    except httpx.TransportError:
        return False
