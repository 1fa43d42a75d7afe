"""Every fixture, in a pytest of its own with several processes, on both engines."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest

from tests import servers
from tests.shape.source import ROOT

SHOP = """
import asyncio, os, time
from towline import Backoff, INJECTED, Context, Towline

app = Towline("sqlite:////nowhere/at/all.db")

@app.task
def add(a: int, b: int) -> int:
    return a + b

@app.task
async def aadd(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b

@app.task(timeout=0.2, max_attempts=1)
def slow(ctx: Context = INJECTED) -> None:
    ctx.stop.wait(30)

@app.task(run_in="process")
def pid() -> int:
    return os.getpid()
"""
TESTS = """
import asyncio, os
import pytest
from shop import aadd, add, app, pid, slow
from towline import ChainFailed

def test_drain(towline_app, towline_drain):
    assert towline_app is app
    assert towline_app.url.startswith(os.environ["EXPECTED"])
    assert len(app.jobs()) == 0
    job = add.enqueue(1, 2)
    assert towline_drain() == 1
    assert job.result(0) == 3

def test_adrain(towline_adrain):
    async def main():
        job = await aadd.aenqueue(1, 2)
        assert await towline_adrain() == 1
        return job
    assert asyncio.run(main()).result(0) == 3

def test_inline(towline_inline):
    assert towline_inline is app
    assert add.enqueue(1, 2).state == "completed"

def test_worker(towline_worker, towline_app):
    assert towline_worker.app is app
    late, soon, child = slow.enqueue(), add.using(delay=0.1).enqueue(1, 2), pid.enqueue()
    assert soon.result(30) == 3
    with pytest.raises(ChainFailed):
        late.result(30)
    assert app.job(late.id).outcome == "timeout"
    assert child.result(60) != os.getpid()

def test_events(towline_events, towline_drain):
    add.enqueue(1, 2)
    towline_drain()
    (stored,) = towline_events("job.enqueued")
    assert (stored.task, stored.count) == ("add", 1)
    (ended,) = towline_events("attempt.ended")
    assert (ended.outcome, ended.accepted) == ("completed", True)
    assert {"attempt.started", "operation.ended"} <= {event.name for event in towline_events()}

def test_events_of_another_test_are_not_there(towline_events):
    assert towline_events("job.enqueued") == []

def test_no_event_is_wanted_any_more(towline_app):
    assert "job.enqueued" not in towline_app.runner.events.wanted
"""


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_I12_all_fixtures_work_beside_each_other(tmp_path: Path, engine: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(TESTS)
    server = servers.server(servers.servers()[-1])
    with server.database() if engine == "postgres" else nullcontext("") as url:
        settings = "towline_app = shop:app" + ("\ntowline_url = $SHOP_URL" if url else "")
        (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = .\n{settings}\n")
        expected = "postgresql://" if url else "sqlite:///"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "towline.pytest_plugin",
             "-p", "xdist", "-n", "2"],
            cwd=tmp_path,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT),
                 "SHOP_URL": url, "EXPECTED": expected},
            capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
        assert "7 passed" in done.stdout, done.stdout
        if url:
            with psycopg.connect(url) as connection:
                left = connection.execute(
                    "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'towline%'"
                ).fetchall()
            assert left == []
