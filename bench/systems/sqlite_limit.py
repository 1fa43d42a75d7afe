"""The bare limit on SQLite: Towline's rows, on Towline's own tables, by sqlite3 alone.

The same pragmas, the same indexes, the log copied at the same length: what is missing is everything
that a queue does beside writing rows. `batch` jobs are finished and as many claimed in a commit.
"""

from __future__ import annotations

import signal
import sqlite3
import time
from typing import Any

from bench.systems import harness
from bench.systems.harness import TEXT, Params, ran
from towline import Towline

CHAIN = "INSERT INTO towline_chain (id, task, created_at, trace) VALUES (?, ?, ?, ?)"
JOB = """
INSERT INTO towline_job (id, chain_id, position, task, label, queue, priority, max_attempts,
                         timeout, key, blockers, policy, arguments, trace, created_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
LIVE = """
INSERT INTO towline_live (state, queue, priority, job_id, attempt, open_blockers, run_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""
FIND = """
SELECT l.job_id, j.chain_id, j.task, j.arguments
  FROM (SELECT job_id FROM towline_live WHERE state = 0 AND queue = 'default'
         ORDER BY priority DESC, job_id LIMIT ?) AS l
 CROSS JOIN towline_job AS j NOT INDEXED ON j.id = l.job_id
"""
CLAIM = """
UPDATE towline_live SET state = 3, attempt = 1, claimed_at = ?, started_at = ?, worker = 1
 WHERE state = 0 AND queue = 'default' AND priority = 0 AND job_id = ?
"""
ATTEMPT = """
INSERT INTO towline_attempt (job_id, number, outcome, final, worker, started_at, ended_at, output)
VALUES (?, 1, 1, 1, 'bare', ?, ?, 'null')
"""
GONE = """
DELETE FROM towline_live WHERE state = +3 AND queue = 'default' AND priority = 0 AND job_id = ?
"""
ENDED = "UPDATE towline_chain SET state = 1, ended_at = ? WHERE id = ? AND state = 0"
COUNTED = """
INSERT INTO towline_rollup (minute, queue, task, outcome, slot, ended, removed, duration,
                            h0, h1, h2, h3, h4, h5, h6, h7,
                            waited, w0, w1, w2, w3, w4, w5, w6, w7)
VALUES (?1, 'default', 'plain', 1, 1, ?2, 0, 0, ?2, 0, 0, 0, 0, 0, 0, 0, 0, ?2, 0, 0, 0, 0, 0, 0, 0)
ON CONFLICT (minute, queue, task, outcome, slot) DO UPDATE
   SET ended = ended + excluded.ended, h0 = h0 + excluded.h0, w0 = w0 + excluded.w0
"""


def opened(params: Params) -> sqlite3.Connection:
    app = Towline(f"sqlite:///{params['place']}")
    app.migrate()
    app.close()
    connection = sqlite3.connect(params["place"], isolation_level=None, check_same_thread=False)
    level = "FULL" if params.get("durable", True) else "NORMAL"
    connection.execute(f"PRAGMA synchronous = {level}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA wal_autocheckpoint = 10000")
    return connection


def rows_of(id: int, now: int, number: int) -> tuple[tuple[Any, ...], ...]:
    arguments = f'{{"number":{number},"text":"{TEXT}"}}'
    return (
        (id, "plain", now, None),
        (id, id, 0, "plain", None, "default", 0, 5, None, None, 0, 0, arguments, None, now),
        (0, "default", 0, id, 0, 0, now),
    )


def enqueue(params: Params) -> dict[str, Any]:
    connection = opened(params)
    run = connection.cursor()
    id = 0

    def one(number: int) -> None:
        nonlocal id
        id += 1
        chain, job, live = rows_of(id, time.time_ns() // 1000, number)
        run.execute("BEGIN IMMEDIATE")
        run.execute(CHAIN, chain)
        run.execute(JOB, job)
        run.execute(LIVE, live)
        run.execute("COMMIT")

    return harness.one_by_one(params, one)


def store(connection: sqlite3.Connection, first: int, numbers: range) -> None:
    if not numbers:
        return
    now = time.time_ns() // 1000
    chains, jobs, lives = zip(*(rows_of(first + n, now, n) for n in numbers), strict=True)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(CHAIN, chains)
    connection.executemany(JOB, jobs)
    connection.executemany(LIVE, lives)
    connection.execute("COMMIT")


def bulk(params: Params) -> dict[str, Any]:
    connection = opened(params)
    store(connection, 1, range(harness.WARM))
    count = params["count"]
    return harness.timed(count, lambda: store(connection, harness.WARM + 1, range(count)))


def fill(params: Params) -> None:
    store(opened(params), 1, range(params["count"]))


def worker(params: Params) -> None:
    """Finish a batch and claim the next in one transaction, until told to stop."""
    connection, batch = opened(params), params["batch"]
    run = connection.cursor()
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    harness.gate()
    held: list[Any] = []
    started = 0
    while not stopping:
        now = time.time_ns() // 1000
        run.execute("BEGIN IMMEDIATE")
        if held:
            run.executemany(ATTEMPT, [(id, started, now) for id, *_ in held])
            run.executemany(GONE, [(id,) for id, *_ in held])
            run.executemany(ENDED, [(now, chain) for _, chain, *_ in held])
            run.execute(COUNTED, (now // 60_000_000, len(held)))
        held = run.execute(FIND, (batch,)).fetchall()
        run.executemany(CLAIM, [(now, now, id) for id, *_ in held])
        run.execute("COMMIT")
        started = now
        for id, *_ in held:
            ran(id - 1)
        if not held:
            time.sleep(0.01)


def left(params: Params) -> dict[str, Any]:
    ((number,),) = opened(params).execute("SELECT count(*) FROM towline_live")
    return {"left": number}


if __name__ == "__main__":
    harness.main({
        "enqueue": enqueue,
        "bulk": bulk,
        "fill": fill,
        "worker": worker,
        "left": left,
    })  # fmt: skip
