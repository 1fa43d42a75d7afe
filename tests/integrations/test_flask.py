"""Flask's context is there in each attempt and gone after it; `flask towline` is our command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from flask import Flask, current_app, has_app_context

from tests.agent import by_hand
from tests.integrations import flask_site
from tests.kit import ROOT
from towline import Towline
from towline.integrations.flask import InContext, init_app
from towline.testing import drain, isolated


@pytest.fixture
def torn_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "torn down"
    monkeypatch.setenv("TORN_DOWN", str(path))
    return path


@pytest.fixture
def shop() -> Iterator[Towline]:
    flask_site.create_app()
    with isolated(flask_site.app) as app:
        yield app


def test_I10_each_attempt_has_a_context_and_leaves_none_in_thread_and_loop(
    shop: Towline, torn_down: Path
) -> None:
    jobs = [
        task.enqueue(number)
        for number, task in enumerate(3 * [flask_site.in_thread, flask_site.on_loop])
    ]
    failing = flask_site.fails.enqueue(6)
    with shop.worker(concurrency=2):
        assert [job.result(30) for job in jobs] == [f"hello {number}" for number in range(6)]
        with pytest.raises(Exception, match="ZeroDivisionError"):
            failing.result(30)
    torn = dict(line.split() for line in torn_down.read_text().splitlines())
    assert torn == {**{str(number): "NoneType" for number in range(6)}, "6": "ZeroDivisionError"}
    assert not has_app_context()


def test_I10_the_command_of_flask_works_in_all_slots_though_a_function_makes_the_application(
    tmp_path: Path, torn_down: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    shop = Towline(url)
    names = ("in_thread", "on_loop", "in_process")
    jobs = [shop.named(name).enqueue(order=number) for number, name in enumerate(names)]
    for words in (["tasks", "--json"], ["worker", "--drain", "--concurrency=2"]):
        done = subprocess.run(
            [sys.executable, "-m", "flask", "--app", "tests.integrations.flask_site:create_app",
             "towline", *words],
            cwd=ROOT, env={**os.environ, "TOWLINE_URL": url}, capture_output=True, text=True,
            timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert [job.result(0) for job in jobs] == ["hello 0", "hello 1", "hello 2"]
    assert sorted(torn_down.read_text().split()[::2]) == ["0", "1", "2"]
    shop.close()


def test_I10_a_drain_in_a_test_has_it_too(shop: Towline, torn_down: Path) -> None:
    job = flask_site.in_thread.enqueue(1)
    assert drain(shop) == 1
    assert job.result(0) == "hello 1"
    assert not has_app_context()


def test_I10_a_later_application_takes_the_place_of_an_earlier_one(shop: Towline) -> None:
    @shop.task
    def which() -> str:
        return current_app.name

    for name in ("first", "second"):
        site = Flask(name)
        init_app(site, shop)
        assert site.extensions["towline"] is shop
        job = which.enqueue()
        drain(shop)
        assert job.result(0) == name
    assert sum(isinstance(each, InContext) for each in shop.middleware) == 1
    del shop.registry["which"]


def test_I10_flask_shows_our_commands_and_their_errors(tmp_path: Path) -> None:
    site = Flask("shown")
    init_app(site, Towline(f"sqlite:///{tmp_path}/x.db"))
    result = site.test_cli_runner().invoke(args=["towline", "--help"])
    assert result.exit_code == 0
    assert "Run jobs until stopped." in result.output
    result = site.test_cli_runner().invoke(args=["towline", "mcp", "--help"])
    assert result.exit_code == 0
    assert "Serve an agent" in result.output
    result = site.test_cli_runner().invoke(args=["towline", "nothing"])
    assert result.exit_code == 2
    assert "TOWLINE_APP" not in os.environ


PRINTS = """
import os
print("hello from the site")
os.write(1, b"below Python\\n")
from tests.integrations.flask_site import create_app
"""


@pytest.mark.parametrize(
    ("file", "words"), [("my_site.py", ["--app", "my_site:create_app()"]), ("wsgi.py", [])]
)
def test_A5_agents_are_served_by_the_command_that_a_refusal_names(
    tmp_path: Path, file: str, words: list[str]
) -> None:
    """What the application prints has gone to stdout when `flask towline` begins, and goes to
    stderr behind `towline mcp`."""
    (tmp_path / file).write_text(PRINTS)
    place = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": place}
    refused = subprocess.run(
        ["flask", *words, "towline", "mcp", "--allow", "pause"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert refused.returncode == 2
    assert "jsonrpc" not in refused.stdout
    (command,) = re.findall(r"`(.*?)`", refused.stderr)
    with closing(Towline(f"sqlite:///{tmp_path}/towline.db")) as shop:
        shop.migrate()
    visited = by_hand.visit(["bash", "-c", command], tmp_path, environment)
    assert visited.code == 0, visited.errors
    hello, overview = visited.messages
    assert hello["result"]["serverInfo"]["name"] == "towline"
    assert overview["result"]["structuredContent"]["queues"] == {}
    assert "hello from the site" in visited.errors
    assert "below Python" in visited.errors
