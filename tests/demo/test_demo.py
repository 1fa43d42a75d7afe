"""The demo holds on every engine, adds up, and does not say so when it does not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from examples.demo.ledger import Figures, Ledger
from examples.demo.shop import app
from tests import servers
from tests.shape.source import ROOT
from towline.worker.identity import identity_of, is_gone

SMALL = 14  # jobs beside the crowd: a chain of three, nine for the album, a receipt, the stock
CONTINUED = 2

DAMAGE = {
    "jobs asked for and stored": "DELETE FROM towline_demo_job WHERE id = 20",
    "jobs completed": "UPDATE towline_demo_attempt SET outcome = 6 WHERE job_id = 20",
    "chains completed": "UPDATE towline_demo_chain SET state = 2 WHERE id = 20",
    "no job completed twice": "INSERT INTO towline_demo_attempt"
    " (job_id, number, outcome, ended_at)"
    " SELECT job_id, 9, outcome, ended_at FROM towline_demo_attempt WHERE job_id = 20",
    "outputs add up": "UPDATE towline_demo_attempt SET output = '7' WHERE job_id = 20",
    "attempts that failed and were tried again": "UPDATE towline_demo_attempt SET outcome = 7"
    " WHERE outcome = 3",
    "attempts lost with the killed worker": "DELETE FROM towline_demo_attempt WHERE outcome = 7",
    "no attempt ended in another way": "UPDATE towline_demo_attempt SET outcome = 8"
    " WHERE outcome = 7",
    "orders committed": "INSERT INTO towline_demo_orders (item) VALUES ('another')",
    "receipts, one for each order": "UPDATE towline_demo_job SET task = 'add'"
    " WHERE task = 'send_receipt'",
}


def demo(
    *arguments: str, program: tuple[str, ...] = ("-m", "examples.demo"), folder: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *program, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check_report(report: dict[str, Any], engine: str) -> None:
    assert report["ok"], report
    assert report["engine"] == engine
    assert (report["retries"], report["taken_over"], report["lost"]) == (1, 1, 0)
    assert report["jobs"] > SMALL
    assert report["chains"] == report["jobs"] - CONTINUED
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["jobs completed"]["found"] == report["jobs"]
    assert all(check["ok"] and check["found"] == check["expected"] for check in checks.values())


def test_it_holds_leaves_nothing_behind_and_every_check_can_fail(tmp_path: Path) -> None:
    """L4, O1, O2, B1, E1, C1. By the command, which takes a path from where one stands; then each
    damage to a copy of the file that it kept; then where it was played before."""
    path, copy = tmp_path / "demo.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    words = ("--json", "--seconds", "0.1", "--url", "sqlite:///demo.db")
    command = ("-m", "towline", "demo")
    done = demo(*words, "--keep", program=command, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    check_report(report_of(done), "sqlite")
    assert "towline_demo_job" in tables(path)
    check_damages(report_of(done)["chains"], path, copy)
    done = demo(*words, program=command, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    check_report(report_of(done), "sqlite")
    assert tables(path) == {"theirs"}


def tables(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def check_damages(chains: int, path: Path, copy: Path) -> None:
    crowd = chains - (SMALL - CONTINUED)
    figures = Figures(chains, CONTINUED, crowd, 1.0, retries=1, killed=1, orders=1)
    app.use(f"sqlite:///{copy}")
    for name, damage in {"": "SELECT 1", **DAMAGE}.items():
        shutil.copy(path, copy)
        ledger = Ledger(app.url)
        ledger.write(damage)
        bad = [check.name for check in ledger.check(figures) if not check.ok]
        assert (name in bad) if name else not bad, (name, bad)
        ledger.close()


def test_it_holds_on_postgres() -> None:
    with servers.server(servers.servers()[-1]).database() as url:
        done = demo("--json", "--seconds", "0.5", "--url", url)
        with psycopg.connect(url) as connection:
            left = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE 'towline%'")
            assert left.fetchall() == []
    assert done.returncode == 0, done.stdout + done.stderr
    check_report(report_of(done), "postgres")


def test_a_person_can_read_it_without_a_terminal() -> None:
    done = demo("--seconds", "0.5")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert not any("\x1b" in line or len(line) > 80 for line in lines)
    for said in (
        "1  A chain with a retry",
        "     charge, attempt 1: TerminalBusy: the card terminal is busy",
        "   ✓ order 1 shipped, 12.5 kg",
        "   ✓ summer: 8 pictures, 348 KB",
        "     INSERT, enqueue, ROLLBACK: 0 orders, 0 jobs",
        "   ✓ the file is sound",
    ):
        assert said in lines
    assert lines[-2].endswith("1 retry · 1 taken over · lost 0")
    assert lines[-1].startswith("everything adds up")


def test_a_broken_promise_is_told_and_ends_with_1() -> None:
    """A completed job disappears behind the demo's back."""
    fault = """
import sys
from examples import demo
from examples.demo.acts import Acts

whole = Acts.crowd

def crowd(self, seconds):
    whole(self, seconds)
    self._ledger.write("DELETE FROM towline_demo_job WHERE id = 20")

Acts.crowd = crowd
sys.exit(demo.main(0.2, json=True))
"""
    done = demo(program=("-c", fault))
    assert done.returncode == 1, done.stdout + done.stderr
    report = report_of(done)
    assert not report["ok"]
    assert report["lost"] == 1
    assert report["problem"] is None
    bad = [check["name"] for check in report["checks"] if not check["ok"]]
    assert "jobs completed" in bad


def test_an_act_that_cannot_be_played_ends_with_1_and_says_why() -> None:
    fault = """
import sys
from examples import demo

sys.executable = "/bin/false"
sys.exit(demo.main(0.2))
"""
    done = demo(program=("-c", fault))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "StoreUnavailable: no worker" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("NOT as promised")


def test_workers_do_not_outlive_the_demo(tmp_path: Path) -> None:
    """W4: also when the demo itself is killed."""
    program = f"""
import time
from pathlib import Path
from examples.demo.crew import Crew
from examples.demo.shop import app

url = "sqlite:///{tmp_path}/demo.db"
app.use(url)
app.migrate()
Crew(url, Path({str(tmp_path)!r})).start("worker-1")
print(app.workers()[0].pid, flush=True)
time.sleep(60)
"""
    driver = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    pid = int(driver.stdout.readline())
    birth = identity_of(pid)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    while not is_gone(pid, birth):
        time.sleep(0.02)
