"""A real server that is stopped, or reloads, in the middle of handlers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import servers
from tests.cluster import free_port
from tests.database import opened
from tests.kit import ROOT
from tests.speed import by_speed
from tests.until import until
from towline import Towline

TASKS = ("linger", "block")


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Towline]:
    name = servers.servers()[-1] if request.param == "postgres" else request.param
    with opened(name, tmp_path) as database:
        app = Towline(database.url)
        yield app
        app.close()


@contextmanager
def serving(site: str, shop: Towline, *options: str) -> Iterator[tuple[Any, httpx.Client]]:
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", site, f"--port={port}", "--log-level=warning", *options],
        env={**os.environ, "TOWLINE_URL": shop.url, "PYTHONPATH": str(ROOT)},
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            until(lambda: is_there(client), "the server answers")
            yield server, client
    finally:
        if server.poll() is None:
            server.terminate()
            server.wait()


def is_there(client: httpx.Client) -> bool:
    try:
        return client.get("/").status_code == 404
    except httpx.TransportError:
        return False


def begun(client: httpx.Client, shop: Towline) -> Sequence[int]:
    """One job of each kind, which run."""
    jobs = [client.post(f"/start/{task}").json()["job"] for task in TASKS]
    until(lambda: all(shop.job(job).state == "running" for job in jobs), "both run")
    return jobs


def outcomes(shop: Towline, job: int) -> list[str]:
    return [str(attempt.outcome) for attempt in shop.attempts(job)]


def test_I9_a_stopped_server_hands_back_what_its_handlers_had(shop: Towline) -> None:
    with serving("tests.integrations.served_shop:api", shop) as (server, client):
        jobs = begun(client, shop)
        client.close()
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) in (0, -signal.SIGTERM)
    assert [outcomes(shop, job) for job in jobs] == [["released"], ["released"]]
    assert [str(shop.job(job).state) for job in jobs] == ["pending", "pending"]
    assert list(shop.workers()) == []


@pytest.mark.parametrize("shop", by_speed(["sqlite"], ["sqlite", "postgres"]), indirect=True)
def test_I9_a_reload_orphans_nothing(shop: Towline, tmp_path: Path) -> None:
    """What ran in the old process is handed back by it, and run by the new one."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "site_of_shop.py").write_text("from tests.integrations.served_shop import api\n")
    options = ["--reload", f"--reload-dir={code}", f"--app-dir={code}"]
    with serving("site_of_shop:api", shop, *options) as (_, client):
        jobs = begun(client, shop)
        client.close()
        (code / "site_of_shop.py").write_text("from tests.integrations.served_shop import api\n#\n")
        until(lambda: all(shop.job(job).state == "completed" for job in jobs), "the new one ran it")
    assert [outcomes(shop, job) for job in jobs] == [["released", "completed"]] * 2
    assert list(shop.workers()) == []
