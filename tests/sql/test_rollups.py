"""A range of minutes is read from the roll-ups without the history around it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import database as databases
from tests import servers
from tests.sql.test_plans import SQL, STORE, count_steps, plan
from towline import Towline
from towline.sql import Queries
from towline.store.stats import StatsFilter

RANGE = StatsFilter(since=100 * 60_000_000, until=110 * 60_000_000)
FILL = """
INSERT INTO towline_rollup (minute, queue, task, outcome, slot, ended, removed, duration,
                            h0, h1, h2, h3, h4, h5, h6, h7,
                            waited, w0, w1, w2, w3, w4, w5, w6, w7)
SELECT id, 'q' || (id % 3), 'a', 1, 1, 1, 0, 5, 1, 0, 0, 0, 0, 0, 0, 0,
       9, 1, 0, 0, 0, 0, 0, 0, 0 FROM span
"""
SPAN = "WITH RECURSIVE span(id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM span WHERE id < ?)"


@pytest.fixture
def filled(make_app: Callable[..., Towline], tmp_path: Path) -> Callable[[int], Any]:
    def fill(minutes: int) -> sqlite3.Connection:
        path = tmp_path / f"{minutes}.db"
        make_app(f"sqlite:///{path}").migrate()
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(SPAN + FILL, [minutes])
        return connection

    return fill


@pytest.mark.parametrize("analyze", [False, True])
def test_a_range_costs_the_same_in_any_history(filled: Callable[[int], Any], analyze: bool) -> None:
    costs = []
    for minutes in (200, 100_000):
        with closing(filled(minutes)) as connection:
            if analyze:
                connection.execute("ANALYZE")
            costs.append(count_steps(connection, STORE.stats(RANGE, 1)))
            lines = plan(connection, SQL.read_rollups)
            assert "SEARCH towline_rollup USING PRIMARY KEY (minute>? AND minute<?)" in lines
    assert costs[0] == costs[1]


@pytest.mark.parametrize("server", servers.servers())
def test_a_range_rides_the_primary_key_on_postgres(server: str, tmp_path: Path) -> None:
    query = Queries("towline.postgres", "towline_", "public").read_rollups
    values = {"unit": 1, "since": 100, "until": 110}
    params = ", ".join(str(values.get(name, "NULL")) for name in query.order)
    span = "WITH span(id) AS (SELECT * FROM generate_series(0, 100000))"
    with (
        databases.opened(server, tmp_path) as database,
        psycopg.connect(database.url, autocommit=True) as connection,
    ):
        connection.execute((span + FILL).encode())
        for statistics in ("", "ANALYZE towline_rollup"):
            connection.execute(statistics.encode())
            for mode in ("force_custom_plan", "force_generic_plan"):
                connection.execute(f"SET plan_cache_mode = {mode}".encode())
                connection.execute(f"PREPARE range AS {query.dollar}".encode())
                found = connection.execute(f"EXPLAIN EXECUTE range ({params})".encode()).fetchall()
                connection.execute("DEALLOCATE range")
                told = "\n".join(line for (line,) in found)
                assert "Seq Scan" not in told, told
                assert "towline_rollup_pkey" in told, told
                assert "(minute >= " in told, told
