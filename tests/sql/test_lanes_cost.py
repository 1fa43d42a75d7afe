"""G8: what a turn in lanes costs does not grow with jobs, open lanes or closed ones, whatever the
statistics say. Counted in steps of SQLite's virtual machine."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.kit import completed
from tests.sql.test_plans import SQL, STORE, count_steps
from towline import Towline
from towline.operation import Op, Steps

ROOM = 10
JOBS = """INSERT INTO towline_job (id, chain_id, position, task, queue, priority, max_attempts,
    blockers, policy, arguments, lane, created_at)
    SELECT value, value, 0, 'a', 'mail', 0, 5, 0, 0, '{}', 'l' || (value % :lanes), 1 FROM number"""
CHAINS = "INSERT INTO towline_chain (id, task, created_at) SELECT value, 'a', 1 FROM number"
LIVES = """INSERT INTO towline_live (state, queue, priority, job_id, run_at, lane)
    SELECT 4, 'mail', 0, value, 1, 'l' || (value % :lanes) FROM number"""
LANES = """INSERT INTO towline_lane (queue, lane, closed, priority, served_at, opens_at)
    SELECT 'mail', 'l' || value, :closed AND value >= 20, 0, value, 4e18 FROM number"""
NUMBER = """WITH RECURSIVE number(value) AS
    (SELECT :first UNION ALL SELECT value + 1 FROM number WHERE value < :last)"""


def fill(path: Path, jobs: int, lanes: int, closed: bool, analyzed: str) -> None:
    app = Towline(f"sqlite:///{path}")
    app.migrate()
    app.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN")
        if analyzed == "when it was empty":
            raw.execute("ANALYZE")
        for text, first, last in (
            (JOBS, 1, jobs), (CHAINS, 1, jobs), (LIVES, 1, jobs), (LANES, 0, lanes - 1),
        ):  # fmt: skip
            into, select = text.split("SELECT", 1)
            given = {"first": first, "last": last, "lanes": lanes, "closed": closed}
            raw.execute(f"{into} {NUMBER} SELECT {select}", given)
        if analyzed == "when it was full":
            raw.execute("ANALYZE")
        raw.execute("COMMIT")


def cost(path: Path) -> int:
    def steps() -> Steps[None]:
        held = yield from STORE.claim(1, ["mail"], ROOM)
        assert len(held) == ROOM
        yield from STORE.finish([completed(job) for job in held])
        assert len((yield from STORE.claim(1, ["mail"], ROOM))) == ROOM
        assert (yield from STORE.peek(["mail"], 5)).pending

    with closing(sqlite3.connect(path, isolation_level=None)) as raw:
        raw.execute("BEGIN IMMEDIATE")
        raw.execute("SELECT max(id) FROM towline_job").fetchall()
        return count_steps(raw, Op("turn", steps))


@pytest.mark.parametrize("analyzed", ["never", "when it was empty", "when it was full"])
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_G8_a_turn_in_lanes_costs_the_same_with_many_jobs_and_lanes(
    tmp_path: Path, analyzed: str, closed: bool
) -> None:
    fill(tmp_path / "small.db", 2_000, 100, closed, analyzed)
    fill(tmp_path / "large.db", 100_000, 10_000, closed, analyzed)
    assert SQL.read_gates.names
    small, large = cost(tmp_path / "small.db"), cost(tmp_path / "large.db")
    assert large <= 1.2 * small, (small, large)
