"""gigq as shipped: WAL, synchronous FULL, one thread, the function named by its module."""

from __future__ import annotations

import logging
from typing import Any

from gigq import Job, JobQueue, JobStatus, Worker
from gigq.db_utils import get_connection

from bench.systems import harness
from bench.systems.harness import TEXT, Params, ran

logging.getLogger("gigq").setLevel(logging.ERROR)


def work(number: int, text: str) -> None:
    """A worker finds it in `__main__`, which is this file there as well."""
    ran(number)


def submit(queue: JobQueue, number: int) -> None:
    queue.submit(Job(name="work", function=work, params={"number": number, "text": TEXT}))


def enqueue(params: Params) -> dict[str, Any]:
    queue = JobQueue(params["place"])
    return harness.one_by_one(params, lambda number: submit(queue, number))


def fill(params: Params) -> None:
    """One by one, it has no bulk; without syncs, since nobody looks at the time."""
    queue = JobQueue(params["place"])
    get_connection(params["place"]).execute("PRAGMA synchronous = OFF")
    for number in range(params["count"]):
        submit(queue, number)


def worker(params: Params) -> None:
    hand = Worker(params["place"], polling_interval=params.get("poll", 5))
    harness.gate()
    hand.start()


def pulse(params: Params) -> dict[str, Any]:
    queue = JobQueue(params["place"])
    return harness.pulse(params, lambda number: submit(queue, number))


def left(params: Params) -> dict[str, Any]:
    stats = JobQueue(params["place"]).stats()
    return {"left": sum(stats.get(s.value, 0) for s in (JobStatus.PENDING, JobStatus.RUNNING))}


if __name__ == "__main__":
    harness.main({
        "enqueue": enqueue,
        "fill": fill,
        "worker": worker,
        "pulse": pulse,
        "left": left,
    })  # fmt: skip
