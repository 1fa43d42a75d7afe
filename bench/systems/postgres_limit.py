"""The bare limit on PostgreSQL: Towline's rows, on Towline's own tables, by psycopg alone.

One prepared statement for one commit, as few bytes and round trips as there can be: an enqueue
stores its three rows, a turn of the worker ends `batch` jobs and claims as many. Bulk is COPY.
"""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import psycopg

from bench.systems import harness
from bench.systems.harness import TEXT, Params, ran
from towline import Towline

STORE = b"""
WITH r AS (SELECT nextval('towline_job_ids') AS id), chains AS (
    INSERT INTO towline_chain (id, task, created_at, trace) SELECT id, 'plain', %(now)s, NULL FROM r
), jobs AS (
    INSERT INTO towline_job (id, chain_id, position, task, queue, priority, max_attempts, blockers,
                             policy, arguments, created_at)
    SELECT id, id, 0, 'plain', 'default', 0, 5, 0, 0, %(arguments)s, %(now)s FROM r
)
INSERT INTO towline_live (state, queue, priority, job_id, run_at)
SELECT 0, 'default', 0, id, %(now)s FROM r
RETURNING job_id
"""
TURN = b"""
WITH gone AS (
    DELETE FROM towline_live WHERE job_id = ANY (%(held)s)
), recorded AS (
    INSERT INTO towline_attempt (job_id, number, outcome, final, worker, started_at, ended_at,
                                 output)
    SELECT id, 1, 1, 1, 'bare', %(started)s, %(now)s, 'null' FROM unnest(%(held)s) AS id
), ended AS (
    UPDATE towline_chain SET state = 1, ended_at = %(now)s
     WHERE id = ANY (%(held)s) AND state = 0
), counted AS (
    INSERT INTO towline_rollup AS t (minute, queue, task, outcome, slot, ended, removed, duration,
                                     h0, h1, h2, h3, h4, h5, h6, h7,
                                     waited, w0, w1, w2, w3, w4, w5, w6, w7)
    SELECT %(now)s / 60000000, 'default', 'plain', 1, 1, cardinality(%(held)s), 0, 0,
           cardinality(%(held)s), 0, 0, 0, 0, 0, 0, 0,
           0, cardinality(%(held)s), 0, 0, 0, 0, 0, 0, 0
     WHERE cardinality(%(held)s) > 0
    ON CONFLICT (minute, queue, task, outcome, slot) DO UPDATE
       SET ended = t.ended + excluded.ended, h0 = t.h0 + excluded.h0, w0 = t.w0 + excluded.w0
), next AS MATERIALIZED (
    SELECT job_id FROM towline_live WHERE state = 0 AND queue = 'default'
     ORDER BY priority DESC, job_id LIMIT %(batch)s
       FOR UPDATE SKIP LOCKED
)
UPDATE towline_live AS l
   SET state = 3, attempt = l.attempt + 1, claimed_at = %(now)s, started_at = %(now)s, worker = 1
  FROM towline_job AS j
 WHERE l.job_id = ANY (ARRAY(SELECT job_id FROM next))
   AND j.id = ANY (ARRAY(SELECT job_id FROM next)) AND j.id = l.job_id
RETURNING l.job_id, j.chain_id, j.task, j.arguments
"""
COPIES = {
    "towline_chain (id, task, created_at, trace)": ["int8", "text", "int8", "text"],
    "towline_job (id, chain_id, position, task, queue, priority, max_attempts, blockers, policy, "
    "arguments, created_at)": [
        "int8", "int8", "int4", "text", "text", "int4", "int4", "int4", "int2", "text", "int8",
    ],
    "towline_live (state, queue, priority, job_id, run_at)": [
        "int2", "text", "int4", "int8", "int8",
    ],
}  # fmt: skip


def opened(params: Params) -> psycopg.Connection[Any]:
    app = Towline(params["place"])
    app.migrate()
    app.close()
    return connected(params)


def connected(params: Params) -> psycopg.Connection[Any]:
    connection = psycopg.connect(params["place"], autocommit=True)
    if not params.get("durable", True):
        connection.execute("SET synchronous_commit = off")
    return connection


def enqueue(params: Params) -> dict[str, Any]:
    opened(params).close()
    mine = threading.local()

    def one(number: int) -> None:
        if not hasattr(mine, "connection"):
            mine.connection = connected(params)
        values = {
            "now": time.time_ns() // 1000,
            "arguments": f'{{"number":{number},"text":"{TEXT}"}}',
        }
        mine.connection.execute(STORE, values, prepare=True).fetchone()

    return harness.one_by_one(params, one)


def store(connection: psycopg.Connection[Any], numbers: range) -> None:
    now = time.time_ns() // 1000
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT nextval('towline_job_ids') FROM generate_series(1, %s)", [len(numbers)]
        )
        ids = [id for (id,) in cursor.fetchall()]
        tables: list[list[tuple[Any, ...]]] = [
            [(id, "plain", now, None) for id in ids],
            [
                (id, id, 0, "plain", "default", 0, 5, 0, 0,
                 f'{{"number":{number},"text":"{TEXT}"}}', now)
                for id, number in zip(ids, numbers, strict=True)
            ],
            [(0, "default", 0, id, now) for id in ids],
        ]  # fmt: skip
        for (table, types), rows in zip(COPIES.items(), tables, strict=True):
            with cursor.copy(f"COPY {table} FROM STDIN (FORMAT binary)".encode()) as copy:
                copy.set_types(types)
                for row in rows:
                    copy.write_row(row)


def bulk(params: Params) -> dict[str, Any]:
    connection = opened(params)
    store(connection, range(harness.WARM))
    return harness.timed(params["count"], lambda: store(connection, range(params["count"])))


def fill(params: Params) -> None:
    connection = opened(params)
    if params["count"]:
        store(connection, range(params["count"]))


def worker(params: Params) -> None:
    """End a batch and claim the next by one statement, until told to stop."""
    connection, batch = opened(params), params["batch"]
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    harness.gate()
    cursor = connection.cursor(binary=True)
    held: list[int] = []
    started = 0
    while not stopping:
        now = time.time_ns() // 1000
        values = {"held": held, "now": now, "started": started, "batch": batch}
        rows = cursor.execute(TURN, values, prepare=True).fetchall()
        held, started = [id for id, *_ in rows], now
        for id in held:
            ran(id - 1)
        if not held:
            time.sleep(0.01)


def left(params: Params) -> dict[str, Any]:
    ((number,),) = opened(params).execute("SELECT count(*) FROM towline_live").fetchall()
    return {"left": number}


if __name__ == "__main__":
    harness.main({
        "enqueue": enqueue,
        "bulk": bulk,
        "fill": fill,
        "worker": worker,
        "left": left,
    })  # fmt: skip
