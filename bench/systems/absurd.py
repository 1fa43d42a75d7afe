"""absurd: its stored procedures, from absurdctl's own bundle, driven by the Python SDK."""

from __future__ import annotations

import signal
import threading
from typing import Any

import psycopg
from absurd_sdk import Absurd
from absurdctl import BUNDLED_SCHEMA_SQL

from bench.systems import harness
from bench.systems.harness import TEXT, Params, ran

QUEUE = "bench"


def prepare(params: Params) -> None:
    with psycopg.connect(params["place"], autocommit=True) as connection:
        found = connection.execute("SELECT to_regnamespace('absurd')").fetchone()
        if found is None or found[0] is None:
            connection.execute(BUNDLED_SCHEMA_SQL.encode())
    app = Absurd(params["place"], queue_name=QUEUE)
    app.create_queue(QUEUE)
    app.close()


def spawner(params: Params) -> Any:
    """A function that stores one job, on a connection for each thread."""
    mine = threading.local()

    def one(number: int) -> None:
        if not hasattr(mine, "app"):
            mine.app = Absurd(params["place"], queue_name=QUEUE)
        mine.app.spawn("work", {"number": number, "text": TEXT}, queue=QUEUE)

    return one


def enqueue(params: Params) -> dict[str, Any]:
    prepare(params)
    return harness.one_by_one(params, spawner(params))


def fill(params: Params) -> None:
    """One by one, it has no bulk; nobody waits for the disk here."""
    prepare(params)
    with psycopg.connect(params["place"], autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        app = Absurd(connection, queue_name=QUEUE)
        for number in range(params["count"]):
            app.spawn("work", {"number": number, "text": TEXT}, queue=QUEUE)


def worker(params: Params) -> None:
    prepare(params)
    app = Absurd(params["place"], queue_name=QUEUE)

    @app.register_task(name="work", queue=QUEUE)  # type: ignore[untyped-decorator]
    def work(said: Any, context: Any) -> None:
        ran(said["number"])

    signal.signal(signal.SIGTERM, lambda *_: app.stop_worker())
    harness.gate()
    app.start_worker(batch_size=params.get("batch", 100), poll_interval=params.get("poll", 0.25))


def pulse(params: Params) -> dict[str, Any]:
    return harness.pulse(params, spawner(params))


def left(params: Params) -> dict[str, Any]:
    with psycopg.connect(params["place"]) as connection:
        found = connection.execute(
            "SELECT count(*) FROM absurd.t_bench WHERE state NOT IN ('completed', 'failed')"
        ).fetchone()
    return {"left": found[0] if found else None}


if __name__ == "__main__":
    harness.main({
        "enqueue": enqueue,
        "fill": fill,
        "worker": worker,
        "pulse": pulse,
        "left": left,
    })  # fmt: skip
