"""X8: `towline dashboard` by its real entry point: where it listens, and when it refuses to."""

from __future__ import annotations

import re

import httpx

from tests.cli.shop import APP, Running, Shop
from tests.until import until

TOKEN = "a token of enough length"


def address(running: Running) -> str:
    running.told("dashboard: http://")
    found = re.search(r"http://\S+:\d+", running.log)
    assert found is not None
    return found[0]


def test_it_serves_until_it_is_stopped(any_shop: Shop) -> None:
    job = any_shop.put("fetch", n=1)
    running = any_shop.start("dashboard", APP, "--port", "0")
    found = address(running)
    assert found.startswith("http://127.0.0.1:")
    assert httpx.get(f"{found}/api/jobs/{job}", timeout=60).json()["job"]["task"] == "fetch"
    assert "fetch" in httpx.get(f"{found}/tasks", timeout=60).text
    running.signal()
    assert running.ends() == 0


def test_X8_beyond_this_machine_it_needs_a_token(shop: Shop) -> None:
    shop.app.migrate()
    line = shop.refused("dashboard", APP, "--host", "0.0.0.0", "--port", "0", code=2)
    assert "--token-file" in line
    assert "TOWLINE_DASHBOARD_TOKEN" in line
    (shop.folder / "token").write_text(f"{TOKEN}\n")
    running = shop.start(
        "dashboard", APP, "--host", "0.0.0.0", "--port", "0", "--token-file", "token"
    )
    found = address(running).replace("0.0.0.0", "127.0.0.1")
    assert httpx.get(f"{found}/api/jobs", timeout=60).status_code == 401
    right = {"authorization": f"Bearer {TOKEN}"}
    assert httpx.get(f"{found}/api/jobs", headers=right, timeout=60).status_code == 200
    assert TOKEN not in running.log


def test_X8_a_token_that_is_none_is_refused(shop: Shop) -> None:
    shop.app.migrate()
    (shop.folder / "token").write_text("short")
    line = shop.refused("dashboard", APP, "--token-file", "token", code=2)
    assert "at least 16 characters" in line
    assert "cannot be read" in shop.refused("dashboard", APP, "--token-file", "none", code=2)


def test_an_address_that_is_taken_is_told(shop: Shop) -> None:
    shop.app.migrate()
    port = address(shop.start("dashboard", APP, "--port", "0")).rpartition(":")[2]
    assert "cannot listen on 127.0.0.1" in shop.refused("dashboard", APP, "--port", port, code=2)


def test_dev_is_a_worker_that_reloads_and_the_dashboard_in_one_log(shop: Shop) -> None:
    running = shop.start("dev", APP, "--port", "0", "--concurrency", "2")
    found = address(running)
    running.told("worker    │ ")
    job = shop.put("add", a=1, b=2)
    until(lambda: shop.state(job) == "completed", "the worker runs it")
    assert httpx.get(f"{found}/api/jobs/{job}", timeout=60).json()["job"]["output"] == 3
    (shop.folder / "shop.py").touch()
    running.told("the code has changed")
    running.signal()
    assert running.ends() == 0


def test_dev_ends_when_one_of_them_does(shop: Shop) -> None:
    shop.app.migrate()
    port = address(shop.start("dashboard", APP, "--port", "0")).rpartition(":")[2]
    line = shop.run("dev", APP, "--port", port, code=2).stderr
    assert "cannot listen on 127.0.0.1" in line
    assert "name your app" in shop.refused("dev", code=2)
