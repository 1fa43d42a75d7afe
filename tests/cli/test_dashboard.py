"""X8: `towline dashboard` by its real entry point: where it listens, and when it refuses to."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.cli.shop import APP, Running, Shop, children, is_alive
from tests.kit import HOUR, new
from tests.until import until
from towline.cli.dashboard import names_of
from towline.secret import HIDDEN

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


def test_X10_it_is_answered_under_the_names_of_the_machine_or_those_it_is_given(
    shop: Shop,
) -> None:
    shop.app.migrate()
    (shop.folder / "token").write_text(TOKEN)
    own = socket.gethostname()
    for options, answered, refused in (
        (("--host", "0.0.0.0"), ("127.0.0.1", own, "localhost"), ("jobs.example",)),
        (("--host", "0.0.0.0", "--name", "jobs.example"), ("jobs.example",), ("127.0.0.1", own)),
    ):
        running = shop.start("dashboard", APP, "--port", "0", "--token-file", "token", *options)
        port = address(running).rpartition(":")[2]
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        client.headers["authorization"] = f"Bearer {TOKEN}"
        for name in answered:
            answer = client.get("/api/jobs", headers={"host": f"{name}:{port}"})
            assert answer.status_code == 200, (options, name)
        for name in refused:
            assert client.get("/api/jobs", headers={"host": name}).status_code == 421
        client.close()
        running.signal()
        assert running.ends() == 0


def test_X10_a_name_that_is_listened_on_is_answered_and_its_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def getaddrinfo(host: str, *_: object, **__: object) -> list[Any]:
        if host != "box.example":
            raise socket.gaierror("unknown")
        return [(0, 0, 0, "", ("192.0.2.7", 0)), (0, 0, 0, "", ("2001:db8::7", 0, 0, 0))]

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    assert names_of("box.example") == ["box.example", "192.0.2.7", "2001:db8::7"]
    assert names_of("none.example") == ["none.example"]
    for address in ("localhost", "127.0.0.1", "0.0.0.0", "::", "2001:db8::7"):
        assert names_of(address) == []


def test_X8_a_token_that_is_none_is_refused(shop: Shop) -> None:
    shop.app.migrate()
    (shop.folder / "token").write_text("short")
    line = shop.refused("dashboard", APP, "--token-file", "token", code=2)
    assert "at least 16 characters" in line
    assert "cannot be read" in shop.refused("dashboard", APP, "--token-file", "none", code=2)


def test_X8_an_empty_token_file_is_no_token(shop: Shop) -> None:
    """It was made for one, so it must not open the dashboard to everybody."""
    shop.app.migrate()
    for text in ("", " \n"):
        (shop.folder / "token").write_text(text)
        for host in ("0.0.0.0", "127.0.0.1"):
            words = ("--host", host, "--port", "0", "--token-file", "token")
            line = shop.refused("dashboard", APP, *words, code=2)
            assert "token is empty: write a token of at least 16 characters into it" in line


def test_K4_who_did_what_is_in_its_log(shop: Shop) -> None:
    shop.app.migrate()
    running = shop.start("dashboard", APP, "--port", "0")
    client = httpx.Client(base_url=address(running), timeout=60)
    assert client.post("/do/pause", json={"queue": "mail"}).status_code == 200
    running.told("INFO    pause: {'queue': 'mail', 'done': '1'} by dashboard")
    client.close()


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


def answered(address: str, road: str) -> str:
    """Nothing while the dashboard is being replaced."""
    try:
        return httpx.get(f"{address}{road}", timeout=60).text
    except httpx.TransportError:
        return ""


def test_X12_dev_shows_what_the_changed_code_says(shop: Shop) -> None:
    """The dashboard knows the application as it is now, under the same address; code that is broken
    ends nothing."""
    running = shop.start("dev", APP, "--port", "0")
    found = address(running)
    job = shop.store(new("say", arguments='{"text": "opensesame"}', delay=HOUR))
    assert "opensesame" in httpx.get(f"{found}/jobs/{job}", timeout=60).text
    path = shop.folder / "shop.py"
    source = path.read_text()
    secret = source.replace("def say(text: str", "def say(text: Annotated[str, Secret]")
    secret = secret.replace("import INJECTED,", "import INJECTED, Secret,")
    secret = secret.replace("import os\n", "import os\nfrom typing import Annotated\n", 1)
    path.write_text(secret)

    def hidden() -> bool:
        shown = answered(found, f"/jobs/{job}")
        return HIDDEN in shown and "opensesame" not in shown

    until(hidden, "the secret is hidden")
    path.write_text("this is no Python\n")
    running.told("dashboard │ waiting for a change of the code")
    assert running.process.poll() is None
    path.write_text(secret + "\n\n@app.task\ndef fresh() -> None: ...\n")
    until(lambda: '"slots"' in answered(found, "/api/tasks?task=fresh"), "it knows the task")
    running.signal()
    assert running.ends() == 0


@contextmanager
def programs_of(dev: Running, shop: Shop) -> Iterator[list[int]]:
    """The processes that `towline dev` has started; what is left of them in the end is killed."""
    until(shop.app.workers, "the worker is there")
    own = dev.children()
    all_of_them = [*own, *(pid for parent in own for pid in children(parent))]
    assert len(all_of_them) == 3
    try:
        yield all_of_them
    finally:
        for pid in filter(is_alive, all_of_them):
            os.kill(pid, signal.SIGKILL)


def test_dev_stops_in_order_when_its_terminal_is_closed(shop: Shop) -> None:
    """Nothing is left behind, nor does anything keep the port."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
    try:
        running = shop.start("dev", APP, "--port", "0")
    finally:
        signal.signal(signal.SIGHUP, before)
    port = address(running).rpartition(":")[2]
    with programs_of(running, shop) as programs:
        running.signal(signal.SIGHUP)
        assert running.ends() == 0
        assert not any(map(is_alive, programs))
    assert shop.app.workers() == []
    address(shop.start("dashboard", APP, "--port", port))


def test_dev_that_is_killed_leaves_nothing_behind(shop: Shop) -> None:
    """Nor does anything keep the port, or run jobs that nobody sees."""
    running = shop.start("dev", APP, "--port", "0")
    port = address(running).rpartition(":")[2]
    with programs_of(running, shop) as programs:
        running.signal(signal.SIGKILL)
        until(lambda: not any(map(is_alive, programs)), "all of them have ended")
    assert shop.app.workers() == []
    address(shop.start("dashboard", APP, "--port", port))


def test_dev_ends_when_one_of_them_does(shop: Shop) -> None:
    shop.app.migrate()
    port = address(shop.start("dashboard", APP, "--port", "0")).rpartition(":")[2]
    line = shop.run("dev", APP, "--port", port, code=2).stderr
    assert "cannot listen on 127.0.0.1" in line
    assert "name your app" in shop.refused("dev", code=2)
    running = shop.start("dev", APP, "--port", "0")
    address(running)
    until(shop.app.workers, "the worker is there")
    worker, site = running.children()
    os.kill(worker, signal.SIGTERM)
    assert running.ends() == 0
    assert not is_alive(site)
