"""`towline doctor`: says what is wrong and what to do; exit code 1 when there is a problem."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from typing import Any

from tests.cli.shop import APP, Shop
from tests.kit import new
from tests.until import until


def findings(found: Any, about: str, level: str) -> list[str]:
    return [f["text"] for f in found["findings"] if (f["about"], f["level"]) == (about, level)]


def test_all_is_well(any_shop: Shop) -> None:
    found = any_shop.data("doctor", APP)
    assert found["ok"] is True
    assert findings(found, "database", "ok")
    assert not [f for f in found["findings"] if f["level"] == "problem"]
    text = any_shop.text("doctor", APP)
    assert "0 problems" in text
    assert "up to date" in text
    kind = "size" if any_shop.url.startswith("sqlite") else "autovacuum"
    assert findings(found, kind, "ok")


def test_no_database(shop: Shop) -> None:
    """It is said, not created."""
    found = shop.data("doctor", "--url", f"sqlite:///{shop.folder}/none.db", code=1)
    (line,) = findings(found, "database", "problem")
    assert "there is no database" in line
    assert not (shop.folder / "none.db").exists()


def test_a_password_is_not_shown(shop: Shop) -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/x"
    done = shop.run("doctor", "--url", url, code=1)
    assert "problem" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_nobody_works_on_a_queue(any_shop: Shop) -> None:
    any_shop.store(new("add", queue="slow", arguments='{"a": 1, "b": 1}'))
    found = any_shop.data("doctor", APP, code=1)
    assert findings(found, "queue", "problem") == ["no worker serves queue slow; pending there: 1"]
    assert "--queues slow" in any_shop.text("doctor", APP, code=1)


def test_a_paused_queue_is_a_note(any_shop: Shop) -> None:
    """L8"""
    any_shop.app.pause("default")
    any_shop.put("add", a=1, b=1)
    found = any_shop.data("doctor", APP)
    assert findings(found, "queue", "note") == ["queue default is paused; pending there: 1"]


def test_tasks_that_no_worker_knows(any_shop: Shop) -> None:
    """L7"""
    for _ in range(3):
        any_shop.store(new("gone"))
    any_shop.run("worker", APP, "--drain")
    found = any_shop.data("doctor", APP, code=1)
    assert findings(found, "task", "problem") == ["no worker knows task gone; jobs set aside: 3"]
    job = any_shop.data("jobs", APP, "--task", "gone", "--limit", "1")["jobs"][0]
    assert (job["state"], job["reason"]) == ("pending", "no running worker knows task gone")


def test_a_worker_that_is_gone(any_shop: Shop) -> None:
    """L4: its jobs will be taken over; until then doctor says so."""
    any_shop.put("hold", name="one")
    worker = any_shop.start("worker", APP, "--lease", "1")
    any_shop.began("one")
    worker.signal(signal.SIGKILL)
    worker.ends()

    def expired() -> list[str]:
        return findings(any_shop.data("doctor", APP), "worker", "note")

    (line,) = until(expired, "its lease ran out")
    assert "is gone; the next worker takes its jobs over: 1" in line


def test_a_worker_that_does_not_renew(any_shop: Shop) -> None:
    """L2: its tasks are named, and run_in="process" is."""
    any_shop.put("hold", name="one")
    worker = any_shop.start("worker", APP, "--lease", "1")
    any_shop.began("one")
    os.kill(worker.process.pid, signal.SIGSTOP)
    until(lambda: any_shop.data("workers", APP)["workers"][0]["expired"], "its lease ran out")
    found = any_shop.data("doctor", APP, code=1)
    (line,) = findings(found, "worker", "problem")
    assert "it runs hold" in line
    assert 'run_in="process"' in any_shop.text("doctor", APP, code=1)
    os.kill(worker.process.pid, signal.SIGCONT)


def test_lost_attempts_name_their_task(shop: Shop) -> None:
    """L2, O7: a task that takes its worker along."""
    job = shop.put("die")
    assert shop.start("worker", APP).ends() == -signal.SIGKILL
    shop.app.pause("default")  # it is taken back, and not run again
    shop.start("worker", APP)
    until(lambda: shop.app.job(job).outcome == "lost", "the attempt was taken back")
    (line,) = findings(shop.data("doctor", APP), "lost", "note")
    assert "task die" in line


def test_a_file_that_does_not_shrink(shop: Shop) -> None:
    """R4: how to change it is said."""
    path = shop.folder / "theirs.db"
    url = f"sqlite:///{path}"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (text BLOB)")
        connection.execute("INSERT INTO theirs VALUES (zeroblob(8000000))")
        connection.commit()
        shop.run("migrate", "--url", url)
        assert findings(shop.data("doctor", "--url", url), "size", "ok")
        connection.execute("DELETE FROM theirs")
        connection.commit()
    assert findings(shop.data("doctor", "--url", url), "size", "note")
    assert "PRAGMA auto_vacuum = INCREMENTAL; VACUUM" in shop.text("doctor", "--url", url)
    assert shop.data("vacuum", "--url", url) == {"pages": 0}
