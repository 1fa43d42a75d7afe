"""Fill a database with jobs in every state, quickly, in the real schema of either engine.

Straight into the tables: a million jobs of each kind take seconds, where enqueueing, running and
finishing them would take an hour. Used by the measurements and by the tests of query plans.

Ids grow in the order finished, scheduled, blocked, parked, pending, as in a database that has been
running for long. What cannot be claimed has a higher priority than what can, so that a claim that
looked at it would pay for it.

    python -m bench.seed app.db --each 100000 --queues 5
    python -m bench.seed postgresql://me@host/empty --each 100000
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from towline import Towline
from towline.model import unknown_task
from towline.records import NewJob
from towline.sql import fill as fill_names

PREFIX = "towline_"
TASK = "work"
STRANGER = "stranger"  # a task that no worker knows: what the parked jobs are of
PRIORITIES = 3
ABOVE = 100  # how far the priority of what cannot be claimed lies above the rest
YEAR = 365 * 86_400 * 1_000_000
ARGUMENTS = '{"text":"' + "a" * 239 + '"}'  # 250 bytes
OUTPUT = '"' + "o" * 98 + '"'  # 100 bytes
FINISHED, SCHEDULED, BLOCKED, PARKED, PENDING = (
    "finished",
    "scheduled",
    "blocked",
    "parked",
    "pending",
)
LIVE = {PENDING: 0, SCHEDULED: 1, BLOCKED: 2, PARKED: 4}


@dataclass(frozen=True)
class Numbers:
    """How many jobs of each kind, over how many queues."""

    finished: int = 0
    scheduled: int = 0
    blocked: int = 0
    parked: int = 0
    pending: int = 0
    queues: int = 1

    @classmethod
    def each(cls, number: int, queues: int = 1) -> Numbers:
        return cls(number, number, number, number, number, queues)

    def ids(self, kind: str) -> range:
        return next(range(first, last + 1) for name, first, last in self.spans() if name == kind)

    def spans(self) -> Iterator[tuple[str, int, int]]:
        """Each kind with its first and last id."""
        first = 1
        for kind in (FINISHED, SCHEDULED, BLOCKED, PARKED, PENDING):
            number: int = getattr(self, kind)
            if number:
                yield kind, first, first + number - 1
            first += number


def queue_names(queues: int) -> list[str]:
    return [f"queue{number}" for number in range(queues)]


def new_job(number: int, queues: int = 1) -> NewJob:
    """A pending job of the same shape as the seeded ones."""
    return NewJob(TASK, ARGUMENTS, queue=f"queue{number % queues}", priority=number % PRIORITIES)


def register(app: Towline) -> int:
    """Enter the worker "bench", whose turns are measured."""
    return app.runner.run(
        app.runner.store.register(
            "bench", host="", pid=0, birth=None, version="", queues=[], concurrency=1, lease=2**50
        )
    )


def seed(path: Path, numbers: Numbers, *, arguments: str = ARGUMENTS) -> None:
    """Create the database at a path that has none, and fill it."""
    app = Towline(f"sqlite:///{path}")
    app.migrate()
    app.close()
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA cache_size = -200000")
        connection.execute("BEGIN")
        for kind, first, last in numbers.spans():
            values, statements = _rows(kind, first, last, numbers, arguments)
            for text in statements:
                connection.execute(fill_names(SPAN + text, PREFIX), values)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()


def seed_postgres(url: str, numbers: Numbers, *, arguments: str = ARGUMENTS) -> None:
    """Create the tables in a database that has none, and fill them; nothing is analyzed."""
    import psycopg  # only where it is used: SQLite needs no driver

    app = Towline(url)
    app.migrate()
    app.close()
    last = 0
    with psycopg.ClientCursor(psycopg.connect(url)) as cursor, cursor.connection:
        for kind, first, last in numbers.spans():
            values, statements = _rows(kind, first, last, numbers, arguments)
            for text in statements:
                filled = fill_names(POSTGRES_SPAN + text, PREFIX, "public")
                filled = re.sub(r"(?<!:):(\w+)", r"%(\1)s", filled.replace("%", "%%"))
                cursor.execute(filled.encode(), values)
        if last:
            cursor.execute("SELECT setval(%s, %s)", [f"public.{PREFIX}job_ids", last])


def _rows(
    kind: str, first: int, last: int, numbers: Numbers, arguments: str
) -> tuple[dict[str, Any], list[str]]:
    """The statements that make the rows of one kind, and their parameters."""
    now = time.time_ns() // 1000
    values: dict[str, Any] = {
        "first": first,
        "last": last,
        "queues": numbers.queues,
        "task": STRANGER if kind == PARKED else TASK,
        "above": 0 if kind in (PENDING, FINISHED) else ABOVE,
        "blockers": int(kind == BLOCKED),
        "arguments": arguments,
        "output": OUTPUT,
        "now": now,
        "run_at": now + YEAR if kind == SCHEDULED else now,
        "live": LIVE.get(kind),
        "parked": unknown_task(STRANGER) if kind == PARKED else None,
        "ended": int(kind == FINISHED),
    }
    statements = [CHAINS, JOBS, ATTEMPTS if kind == FINISHED else LIVES]
    if kind == FINISHED:
        statements.append(ROLLUPS)
    if kind == BLOCKED:
        # One chain each, which nobody finishes while we measure: the scheduled ones.
        values["chain"] = numbers.finished + 1 if numbers.scheduled else first
        values["chains"] = max(numbers.scheduled, 1)
        statements.append(BLOCKERS)
    return values, statements


# One row for each id; beside it the statements below are the same for both engines.
SPAN = """
WITH RECURSIVE span(id) AS (SELECT :first UNION ALL SELECT id + 1 FROM span WHERE id < :last)
"""
POSTGRES_SPAN = """
WITH span(id) AS (SELECT * FROM generate_series(:first::bigint, :last::bigint))
"""
LANE = f"'queue' || (id % :queues), id % {PRIORITIES} + :above"
CHAINS = """
INSERT INTO {chain} (id, task, state, created_at, ended_at)
SELECT id, :task, :ended, :now, CASE WHEN :ended = 1 THEN :now END FROM span
"""
JOBS = f"""
INSERT INTO {{job}} (id, chain_id, position, task, queue, priority, max_attempts, blockers, policy,
                     arguments, created_at)
SELECT id, id, 0, :task, {LANE}, 5, :blockers, 0, :arguments, :now FROM span
"""
LIVES = f"""
INSERT INTO {{live}} (state, queue, priority, job_id, open_blockers, run_at, parked_for)
SELECT :live, {LANE}, id, :blockers, :run_at + id, :parked FROM span
"""
ATTEMPTS = """
INSERT INTO {attempt} (job_id, number, outcome, final, worker, started_at, ended_at, output)
SELECT id, 1, 1, 1, 'seed', :now, :now, :output FROM span
"""
ROLLUPS = """
INSERT INTO {rollup} (minute, queue, task, outcome, slot, ended, removed, duration,
                      h0, h1, h2, h3, h4, h5, h6, h7, waited, w0, w1, w2, w3, w4, w5, w6, w7)
SELECT :now / 60000000, 'queue' || (id % :queues), :task, 1, 0, count(*), 0, 0,
       count(*), 0, 0, 0, 0, 0, 0, 0, 0, count(*), 0, 0, 0, 0, 0, 0, 0 FROM span GROUP BY 2
"""
BLOCKERS = """
INSERT INTO {blocker} (chain_id, job_id, position)
SELECT :chain + (id - :first) % :chains, id, 0 FROM span
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill a new database with jobs in every state.")
    parser.add_argument("place", help="a file, or the URL of an empty PostgreSQL database")
    parser.add_argument("--each", type=int, default=100_000, help="jobs of each kind")
    parser.add_argument("--queues", type=int, default=1)
    options = parser.parse_args()
    numbers = Numbers.each(options.each, options.queues)
    begin = time.perf_counter()
    if options.place.startswith(("postgresql:", "postgres:")):
        seed_postgres(options.place, numbers)
    else:
        path = Path(options.place)
        if path.exists():
            parser.error(f"{path} exists")
        seed(path, numbers)
    print(f"{5 * options.each} jobs, {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
