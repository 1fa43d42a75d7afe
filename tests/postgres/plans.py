"""What the server does for each statement of an operation, counted on tables that are full.

python -m tests.postgres.plans --each 1000000        # prints every plan
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.sql import Literal

from bench.seed import FINISHED, PREFIX, TASK, Numbers, queue_names, seed_postgres
from tests import servers
from tests.speed import PROOF
from towline.connections.postgres import parameters
from towline.connections.psycopg import PlainCursor, copied, execute
from towline.operation import Op, Row, Statement, drive
from towline.postgres.transaction import SETTINGS

BIG_TABLES = ("job", "live", "attempt", "chain", "key", "blocker", "schedule", "lane", "note")
QUEUES = queue_names(5)
WORKERS = 50
RUNNING = 1_900
LANES, LANED = 400, 900  # of one queue, half of them closed, and jobs in them

# Beside what bench.seed makes: keys, labels, chains of two jobs, failures, running jobs, workers,
# schedules.
MORE = """
INSERT INTO towline_key SELECT '{task}', 'k' || id, id, 1, 1
  FROM towline_job WHERE id <= {finished};
UPDATE towline_job SET key = 'k' || id, label = 'l' || id % 1000 WHERE id <= {finished};
INSERT INTO towline_job (id, chain_id, position, task, queue, priority, max_attempts, blockers,
                          policy, arguments, created_at)
SELECT {jobs} + id, id, 1, task, queue, priority, 5, 0, 0, '{{}}', created_at
  FROM towline_job WHERE id <= {finished};
INSERT INTO towline_attempt (job_id, number, outcome, final, ended_at)
SELECT {jobs} + id, 1, CASE id % 50 WHEN 0 THEN 3 ELSE 1 END, 1, 1
  FROM towline_job WHERE id <= {finished};
UPDATE towline_attempt SET outcome = 2 WHERE job_id <= {finished};
UPDATE towline_chain SET state = 2, bad = true WHERE id <= {finished} AND id % 50 = 0;
INSERT INTO towline_worker SELECT id, 'w' || id, 'here', id, '', '', '[]', 1, 1, 1, {lease}
  FROM generate_series(1, {workers}) AS id;
UPDATE towline_live SET state = 3, attempt = 1, worker = 1 + job_id % {workers}, claimed_at = 1
 WHERE job_id > {jobs} - {running};
INSERT INTO towline_schedule (name, task, template, every, tz, jitter, catch_up, overlap, next_at,
                              declared, declared_in)
SELECT 's' || id, 't' || id % 5, '{{"arguments":"{{}}"}}', 60000000, 'UTC', 0, 1, 'replace',
       {lease},
       CASE WHEN id % 1000 = 0 THEN 'x' END, CASE WHEN id % 1000 = 0 THEN 'd' END
  FROM generate_series(1, {finished}) AS id;
INSERT INTO towline_chain (id, task, created_at)
SELECT {last} + n, 'laned', 1 FROM generate_series(1, {laned}) AS n;
INSERT INTO towline_job (id, chain_id, position, task, queue, priority, max_attempts, blockers,
                          policy, arguments, lane, created_at)
SELECT {last} + n, {last} + n, 0, 'laned', 'laned', 0, 5, 0, 0, '{{}}', 'l' || n % {lanes}, 1
  FROM generate_series(1, {laned}) AS n;
INSERT INTO towline_live (job_id, state, queue, priority, run_at, lane)
SELECT {last} + n, 4, 'laned', 0, 1, 'l' || n % {lanes} FROM generate_series(1, {laned}) AS n;
INSERT INTO towline_lane SELECT 'laned', 'l' || n, n % 2, 0, n, CASE n % 2 WHEN 1 THEN {lease} END
  FROM generate_series(0, {lanes} - 1) AS n;
INSERT INTO towline_note (queue, lane, priority)
SELECT 'noted', 'l' || n % {lanes}, 0 FROM generate_series(1, {finished}) AS n;
INSERT INTO towline_limit (queue, lane, concurrency) VALUES ('laned', '', 500), ('laned', '*', 2);
SELECT setval('towline_job_ids', {last} + {finished});
"""
TRUNCATE = f"TRUNCATE {', '.join(f'{PREFIX}{table}' for table in (*BIG_TABLES, 'worker'))}"


def fill(url: str, each: int, statistics: str) -> None:
    """Fill an empty database; statistics: none, of everything, or of the few jobs once there."""
    numbers = Numbers.each(each, len(QUEUES))
    if statistics == "of 100 jobs":
        _fill(url, Numbers.each(20, len(QUEUES)))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")
            connection.execute(TRUNCATE.encode())
            connection.execute(f"TRUNCATE {PREFIX}rollup, {PREFIX}limit".encode())
    _fill(url, numbers)
    if statistics == "of everything":
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")


def _fill(url: str, numbers: Numbers) -> None:
    seed_postgres(url, numbers, arguments="{}")
    each = len(numbers.ids(FINISHED))
    text = MORE.format(
        task=TASK, finished=each, jobs=5 * each, lease=2**60, workers=WORKERS,
        running=min(RUNNING, each // 2), last=6 * each, lanes=max(min(LANES, each // 5), 2),
        laned=min(LANED, each),
    )  # fmt: skip
    with psycopg.connect(url, autocommit=True) as connection:
        for table in (*BIG_TABLES, "worker"):  # statistics come when the test says so
            connection.execute(
                f"ALTER TABLE {PREFIX}{table} SET (autovacuum_enabled = false)".encode()
            )
        connection.execute(text.encode())


# ---- one statement


@dataclass
class Explained:
    """A statement of an operation, its plan, and what was counted while it ran."""

    name: str
    plan: dict[str, Any]

    def nodes(self) -> Iterator[dict[str, Any]]:
        stack = [self.plan]
        while stack:
            node = stack.pop()
            yield node
            stack += node.get("Plans", [])

    def scans(self) -> Iterator[tuple[dict[str, Any], str]]:
        """The nodes that read a big table or its index, with the table's or index's name."""
        for node in self.nodes():
            table = str(node.get("Relation Name") or node.get("Index Name") or "")
            table = table.removeprefix(PREFIX)
            if "Scan" in node["Node Type"] and table.split("_")[0] in BIG_TABLES:
                if not of_running(node):
                    yield node, str(node.get("Index Name") or table).removeprefix(PREFIX)

    def whole(self) -> list[str]:
        """Tables and indexes that were read from one end on, not searched by a condition."""
        return [
            f"{node['Node Type']} of {name}"
            for node, name in self.scans()
            if node["Node Type"] != "Bitmap Heap Scan"
            and ("Seq" in node["Node Type"] or not {"Index Cond", "TID Cond"} & node.keys())
        ]

    def examined(self) -> int:
        """Rows of big tables that were looked at, whether they were wanted or not."""
        return sum(seen(node) for node, _ in self.scans())

    def sorted(self) -> int:
        """The most rows that were put in order."""
        sorts = [node for node in self.nodes() if "Sort" in node["Node Type"]]
        sources = [child for node in sorts for child in node["Plans"] if not of_running(child)]
        return max(map(seen, sources), default=0)

    def __str__(self) -> str:
        return f"{self.name}: {_text(self.plan)}"


def of_running(node: dict[str, Any]) -> bool:
    """Whether it reads the running jobs: there are as many as all workers have slots."""
    if node["Node Type"] == "Bitmap Heap Scan":
        return of_running(node["Plans"][0])
    return str(node.get("Index Name", "")).endswith("_live_running")


def seen(node: dict[str, Any]) -> int:
    rows = node.get("Actual Rows", 0)
    rows += node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int(rows * node.get("Actual Loops", 1))


def _text(node: dict[str, Any], depth: int = 0) -> str:
    what = [node["Node Type"]]
    what += [str(node[key]) for key in ("Index Name", "Relation Name", "CTE Name") if key in node]
    what += [f"({node[key]})" for key in ("Index Cond", "Filter", "Sort Key") if key in node]
    line = f"{'  ' * depth}{' '.join(what)}  rows {seen(node)}"
    return "\n".join([line, *(_text(child, depth + 1) for child in node.get("Plans", []))])


# ---- an operation


def explain(url: str, ops: Sequence[Callable[[], Op[Any]]], settings: str) -> list[Explained]:
    """Run operations one after another in a transaction that is rolled back; explain the last.

    A statement that it repeats, such as the next page of a walk, is explained the 1st, 2nd, 4th,
    8th … time; in a proof always.
    """
    found: list[Explained] = []
    times: Counter[str] = Counter()

    def look(statement: Statement) -> list[Row]:
        times[statement.query.text] += 1
        number = times[statement.query.text]
        if copied(statement) is None and (PROOF or number & (number - 1) == 0):
            cursor.execute("SAVEPOINT before")
            found.append(Explained(statement.query.name, plan_of(cursor, statement)))
            cursor.execute("ROLLBACK TO before")
        return execute(cursor, statement, False)

    *before, last = ops
    with psycopg.connect(url) as connection, PlainCursor(connection) as cursor:
        if settings:
            cursor.execute(settings.encode())
        for op in before:
            drive(op(), lambda statement: execute(cursor, statement, False))
        drive(last(), look)
        connection.rollback()
    return found


def plan_of(cursor: psycopg.Cursor[Any], statement: Statement) -> dict[str, Any]:
    """As the driver would prepare it, so that plan_cache_mode decides what plan it gets."""
    places = iter(range(1, 100))
    text = re.sub(r"%s", lambda _: f"${next(places)}", statement.query.format).replace("%%", "%")
    values = parameters(statement)
    types = ", ".join(_type(value) for value in values)
    cursor.execute(f"PREPARE x{f'({types})' if types else ''} AS {text}".encode())
    listed = ", ".join(Literal(value).as_string() for value in values)
    cursor.execute(
        "EXPLAIN (ANALYZE, TIMING off, COSTS off, FORMAT json) "
        f"EXECUTE x{f'({listed})' if values else ''}".encode()
    )
    ((plan,),) = cursor.fetchall()
    cursor.execute("DEALLOCATE x")
    top: dict[str, Any] = plan[0]["Plan"]
    return top


def _type(value: object) -> str:
    """The type that psycopg gives a parameter: text is left to the server."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return "unknown"
    if isinstance(value, float):
        return "double precision"
    assert isinstance(value, int)
    return "smallint" if abs(value) < 2**15 else "integer" if abs(value) < 2**31 else "bigint"


def main() -> None:
    from tests.postgres.test_plans import OPERATIONS, store_of

    parser = argparse.ArgumentParser(description="The plan of every statement of every operation.")
    parser.add_argument("--server", default=servers.servers()[-1])
    parser.add_argument("--each", type=int, default=100_000)
    parser.add_argument("--statistics", default="of everything")
    options = parser.parse_args()
    with servers.server(options.server).database() as url:
        fill(url, options.each, options.statistics)
        numbers = Numbers.each(options.each, len(QUEUES))
        for name, ops in OPERATIONS.items():
            print(f"\n## {name}\n")
            store = store_of(url)
            for explained in explain(url, ops(store, numbers), SETTINGS):
                print(explained, flush=True)


if __name__ == "__main__":
    main()
