"""DBOS: a workflow for each job, on a queue that is polled twenty times a second."""

from __future__ import annotations

import logging
import time
from typing import Any

import psycopg
from dbos import DBOS, DBOSClient

from bench.systems import harness
from bench.systems.harness import TEXT, Params, ran

QUEUE = "bench"
VERSION = "bench"


@DBOS.workflow()  # type: ignore[untyped-decorator]
def work(number: int, text: str) -> None:
    ran(number)


def launch(params: Params, *queues: str) -> None:
    """Create its tables and be one of its executors, for these queues."""
    DBOS(config={
        "name": "bench",
        "system_database_url": url(params),
        "log_level": "ERROR",
        "application_version": VERSION,
        "executor_id": f"bench-{params.get('worker', 0)}",
    })  # fmt: skip
    logging.getLogger("dbos").setLevel(logging.ERROR)
    DBOS.listen_queues(queues)
    DBOS.launch()


def url(params: Params) -> str:
    return str(params["place"])


def client(params: Params) -> DBOSClient:
    return DBOSClient(
        system_database_url=url(params),
        application_name="bench",
        system_database_pool_size=max(5, params.get("threads", 1)),
    )


def prepare(params: Params) -> None:
    """The tables come with an executor, which then stops."""
    launch(params)
    DBOS.destroy()


def storer(params: Params) -> Any:
    stored = client(params)

    def one(number: int) -> None:
        options: Any = {
            "workflow_name": work.__qualname__,
            "queue_name": QUEUE,
            "app_version": VERSION,
        }
        stored.enqueue(options, number, TEXT)

    return one


def enqueue(params: Params) -> dict[str, Any]:
    prepare(params)
    return harness.one_by_one(params, storer(params))


def fill(params: Params) -> None:
    prepare(params)
    one = storer(params)
    for number in range(params["count"]):
        one(number)


def worker(params: Params) -> None:
    harness.gate()
    launch(params, QUEUE)
    DBOS.register_queue(
        QUEUE,
        worker_concurrency=params.get("concurrency", 100),
        polling_interval_sec=params.get("poll", 0.05),
    )
    harness.wait_for_stop()
    DBOS.destroy(workflow_completion_timeout_sec=2)


def pulse(params: Params) -> dict[str, Any]:
    time.sleep(1)
    return harness.pulse(params, storer(params))


def left(params: Params) -> dict[str, Any]:
    with psycopg.connect(url(params)) as connection:
        found = connection.execute(
            "SELECT count(*) FROM dbos.workflow_status WHERE queue_name = %s "
            "AND status NOT IN ('SUCCESS', 'ERROR', 'CANCELLED')",
            [QUEUE],
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
