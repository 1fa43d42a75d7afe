"""Does a turn cost the same on PostgreSQL, whatever else the database holds?

As bench/turn_scale.py: finish k jobs and claim k others, on a database with a thousand jobs of each
kind and on one with a million of each, in alternating rounds; before anybody has run ANALYZE, and
after VACUUM ANALYZE. CPU is that of client and server together. The count that knows no noise is of
pages touched (shared buffers hit or read). Then one connection is kept while a small database
grows, and in the end the plans at the large size are shown.

    python -m bench.postgres_turn_scale              # ten minutes, most of it filling 2 × 4 GB
    python -m bench.postgres_turn_scale --quick      # 100,000 instead of a million
    python -m bench.postgres_turn_scale --server "postgres 16"
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg
from psycopg.rows import tuple_row

from bench._server import add_option, cpu_of, quiet_server, run_sql, version
from bench.seed import Numbers, seed_postgres
from bench.turn_scale import SIZES, SMALL, TARGET, Cost, Lane, compare
from tests.servers import Server
from towline import Towline
from towline.connections.postgres import parameters
from towline.connections.psycopg import execute
from towline.operation import drive
from towline.postgres.transaction import SETTINGS
from towline.sql import Row, Statement

PART = 50_000  # jobs per refill
SHOWN = ("find_due", "hold_chains_now", "find_awaited", "settle_jobs", "claim_pending")


class PostgresLane(Lane):
    def __init__(self, url: str, queues: int) -> None:
        self.url = url
        super().__init__(Towline(url, connections=1, notify=False), queues)
        with psycopg.connect(url) as connection:
            ((self.pid,),) = connection.execute(
                "SELECT pid FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'towline'"
            )

    def cpu(self) -> float:
        """Of this process and of the one that serves its only connection."""
        return super().cpu() + cpu_of(self.pid)

    def steps(self, size: int) -> float:
        pages = 0
        for _, plan in self.explain(size, "FORMAT JSON"):
            top = plan[0]["Plan"]
            pages += top["Shared Hit Blocks"] + top["Shared Read Blocks"]
        return pages / size

    def plans(self, size: int) -> Iterator[tuple[str, str]]:
        for name, plan in self.explain(size, "WAL, COSTS off, TIMING off"):
            if name in SHOWN:
                yield name, plan

    def explain(self, size: int, options: str) -> list[tuple[str, Any]]:
        """What each statement of one turn does. Nobody saw it: all of it is rolled back."""
        found: list[tuple[str, Any]] = []

        def run(statement: Statement) -> list[Row]:
            text = f"EXPLAIN (ANALYZE, BUFFERS, {options}) {statement.query.format}"
            cursor.execute("SAVEPOINT before")
            cursor.execute(text.encode(), parameters(statement))
            rows: list[tuple[Any]] = cursor.fetchall()
            # A plan in JSON is one row, in text one for each line.
            plan = rows[0][0] if isinstance(rows[0][0], list) else "\n".join(r[0] for r in rows)
            found.append((statement.query.name, plan))
            cursor.execute("ROLLBACK TO before")
            return execute(cursor, statement, False)

        with rolled_back(self.url) as cursor:
            claim = drive(self.turn(size), lambda statement: execute(cursor, statement, False))
            self.held = claim.claimed
            drive(self.turn(size), run)
        self.held = []
        return found


@contextmanager
def rolled_back(url: str) -> Iterator[psycopg.Cursor[Any]]:
    """A cursor in a transaction with the engine's own settings."""
    with psycopg.connect(url) as connection, connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(SETTINGS.encode())
        yield cursor
        connection.rollback()


def filled(server: Server, each: int, queues: int) -> str:
    begin = time.perf_counter()
    url = server.create()
    seed_postgres(url, Numbers.each(each, queues))
    took = time.perf_counter() - begin
    print(f"{5 * each:,} jobs, {queues} queues: {took:.0f} s", file=sys.stderr, flush=True)
    return url


def grown(server: Server, jobs: int, rounds: int) -> list[str]:
    """Turns of one connection before and after so many jobs came in, while nobody ran ANALYZE: its
    plans were made when the tables were small. A row for each size of turn."""
    url = filled(server, SMALL, 1)
    run_sql(url, b"VACUUM (ANALYZE)")
    lane = PostgresLane(url, 1)
    costs = {(size, late): Cost() for size in SIZES for late in (False, True)}
    for late in (False, True):
        for _ in range(rounds):
            for size in SIZES:
                lane.round(size, costs[size, late])
        for _ in range(0 if late else jobs // PART):
            lane.refill(PART)
    lane.app.close()
    server.drop(url)
    rows = []
    for size in SIZES:
        a, b = costs[size, False], costs[size, True]
        rows.append(
            f"| {size} | {min(a.wall):.1f} / {median(a.wall):.1f} "
            f"| {min(b.wall):.1f} / {median(b.wall):.1f} | **{min(b.wall) / min(a.wall):.2f}** "
            f"| {min(a.cpu):.1f} → {min(b.cpu):.1f} | **{min(b.cpu) / min(a.cpu):.2f}** |"
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of a turn beside a million rows.")
    add_option(parser)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--each", type=int, help="jobs of each kind in the large database")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--queues", type=int, nargs="+", default=[1, 5])
    options = parser.parse_args()
    each = options.each or (100_000 if options.quick else 1_000_000)
    rounds = options.rounds or (5 if options.quick else 15)
    plans: list[str] = []
    with quiet_server(options.server) as server:
        print(
            f"Turns with {SMALL:,} → {each:,} jobs of each kind; µs per job, best / median of "
            f"{rounds}.\nTarget: ratio of the best at most {TARGET}. "
            f"PostgreSQL {version(server.url)}.\n"
        )
        print(
            "| queues | statistics | k | small, wall | large, wall | ratio wall "
            "| CPU, best | ratio CPU | pages |\n|" + "---|" * 9
        )
        for queues in options.queues:
            urls = [filled(server, number, queues) for number in (SMALL, each)]
            for statistics in ("none", "VACUUM ANALYZE"):
                if statistics != "none":
                    for url in urls:
                        run_sql(url, b"VACUUM (ANALYZE, INDEX_CLEANUP on)")
                run_sql(server.url, b"CHECKPOINT")
                lanes = [PostgresLane(url, queues) for url in urls]
                for row in compare(lanes, rounds):
                    print(f"| {queues} | {statistics} | {' | '.join(row)} |", flush=True)
                for name, plan in lanes[1].plans(10):
                    plans.append(f"{name}, {queues} queues, {statistics}\n\n{plan}\n")
            for url in urls:
                server.drop(url)
        print(f"\nOne connection, before and after {each:,} jobs came in; nobody ran ANALYZE\n")
        print(
            "| k | before, wall | after, wall | ratio wall | CPU, best | ratio CPU |\n|"
            + "---|" * 6
        )
        for line in grown(server, each, rounds):
            print(line, flush=True)
    print("\nPlans of a turn of 10 at the large size\n\n" + "\n".join(plans))


if __name__ == "__main__":
    main()
