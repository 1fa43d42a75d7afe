"""import: what GigQ's own package has stored is taken over."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from gigq import Job, JobQueue, Workflow, close_connections

from tests.cli.shop import APP, Shop


def add(a: int, b: int) -> int:
    raise AssertionError("never called")


def join(parent_results: dict[str, int]) -> int:
    raise AssertionError("never called")


MAP = ["--map", f"{__name__}.add=add", "--map", f"{__name__}.join=join"]


@pytest.fixture
def old(any_shop: Shop) -> Iterator[Path]:
    """A sum of two sums, and a job of its own with a priority."""
    yield fill(any_shop.folder / "gigq.db")
    close_connections()


def fill(path: Path) -> Path:
    queue, flow = JobQueue(str(path)), Workflow("sums")
    sums = [flow.add_job(Job(f"sum{n}", add, {"a": n, "b": n})) for n in (1, 2)]
    flow.add_job(Job("all", join), depends_on=sums)
    flow.add_job(Job("alone", add, {"a": 5, "b": 5}, priority=7))
    flow.submit_all(queue)
    queue.close()
    return path


def states(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT status FROM jobs ORDER BY rowid").fetchall()
    return [status for (status,) in rows]


@pytest.mark.each_engine
def test_U2_pending_jobs_are_taken_over_once(any_shop: Shop, old: Path) -> None:
    """With their order and priority, and no path of a row is imported."""
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("UPDATE jobs SET function_module = 'nowhere.at_all'")
    words = ["--map", "nowhere.at_all.add=add", "--map", "nowhere.at_all.join=join"]
    preview = any_shop.text("import", APP, "gigq", str(old), *words, "--preview")
    assert preview == "4 jobs would be taken over\n"
    assert states(old) == ["pending"] * 4

    found = any_shop.data("import", APP, "gigq", str(old), *words)
    assert (found["taken"], found["left"]) == (4, [])
    assert states(old) == ["cancelled"] * 4
    first, second, whole, alone = (any_shop.app.job(id) for id in sorted(found["jobs"].values()))
    assert sorted(job.priority for job in (first, second, whole, alone)) == [0, 0, 0, 7]
    any_shop.run("worker", APP, "--drain")
    outputs = [job.output for job in any_shop.app.jobs(state="completed")]
    assert sorted(outputs) == [2, 4, 6, 10]

    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("UPDATE jobs SET status = 'pending'")  # as after a crash in between
    assert any_shop.data("import", APP, "gigq", str(old), *words)["jobs"] == found["jobs"]
    assert len(any_shop.app.jobs()) == 4


def test_the_file_of_the_app_itself_is_one_transaction(shop: Shop) -> None:
    path = fill(Path(shop.url.removeprefix("sqlite:///")))
    with closing(sqlite3.connect(path)) as connection, connection:
        later = (datetime.now() + timedelta(hours=1)).isoformat()  # noqa: DTZ005, as GigQ has it
        connection.execute("UPDATE jobs SET retry_after = ? WHERE name = 'alone'", [later])
    assert shop.text("import", APP, "gigq", str(path), *MAP) == "4 jobs taken over\n"
    close_connections()
    assert shop.app.counts()["default"] == {"pending": 2, "blocked": 1, "scheduled": 1}
    (alone,) = shop.app.jobs(state="scheduled")
    assert alone.run_at is not None
    assert abs(alone.run_at - datetime.fromisoformat(later).astimezone()) < timedelta(seconds=1)
    assert states(path) == ["cancelled"] * 4


def test_what_waits_for_an_ended_job_is_left(shop: Shop) -> None:
    path = fill(shop.folder / "gigq.db")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE jobs SET status = 'completed' WHERE name = 'sum1'")
    found = shop.data("import", APP, "gigq", str(path), *MAP)
    close_connections()
    assert (found["taken"], len(found["left"])) == (2, 1)
    assert states(path) == ["completed", "cancelled", "pending", "cancelled"]


def test_what_cannot_be_taken_changes_nothing(shop: Shop) -> None:
    path = fill(shop.folder / "gigq.db")
    close_connections()

    def refused(*words: str) -> str:
        line = shop.refused("import", APP, *words, code=2)
        assert states(path) == ["pending"] * 4
        assert len(shop.app.jobs()) == 0
        return line

    assert f"{__name__}.join" in refused("gigq", str(path), *MAP[:2])
    assert "no task 'nothing'" in refused("gigq", str(path), "--map", "a.b=nothing")
    assert "is not PATH=TASK" in refused("gigq", str(path), "--map", "add")
    assert "only gigq" in refused("celery", str(path))
    assert "there is no file" in refused("gigq", str(path.with_name("none.db")))
    other = path.with_name("other.db")
    sqlite3.connect(other).close()
    assert "no file of GigQ" in refused("gigq", str(other))
    other.write_bytes(b"no database at all" * 100)
    assert "cannot be used" in refused("gigq", str(other))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("""UPDATE jobs SET params = '{"a": "x", "b": 1}' WHERE name = 'alone'""")
    assert "GigQ's job" in refused("gigq", str(path), *MAP)


def test_jobs_that_wait_for_each_other_are_named(shop: Shop) -> None:
    path = fill(shop.folder / "gigq.db")
    close_connections()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE jobs SET dependencies = json_array(id)")
    assert "wait for each other" in shop.refused("import", APP, "gigq", str(path), *MAP, code=2)
