"""huey on its SQLite storage, as shipped: WAL, synchronous FULL; what has run is deleted."""

from __future__ import annotations

import logging
from typing import Any

from huey import SqliteHuey

from bench.systems import harness
from bench.systems.harness import TEXT, Params, ran

logging.getLogger("huey").setLevel(logging.ERROR)


def opened(params: Params, **options: Any) -> tuple[SqliteHuey, Any]:
    queue = SqliteHuey("bench", filename=params["place"], **options)

    @queue.task()  # type: ignore[untyped-decorator]
    def work(number: int, text: str) -> None:
        ran(number)

    return queue, work


def enqueue(params: Params) -> dict[str, Any]:
    _, work = opened(params)
    return harness.one_by_one(params, lambda number: work(number, TEXT))


def fill(params: Params) -> None:
    """One by one, it has no bulk; without syncs, since nobody looks at the time."""
    _, work = opened(params, fsync=False)
    first = params.get("first", 0)
    for number in range(first, first + params["count"]):
        work(number, TEXT)


def worker(params: Params) -> None:
    queue, _ = opened(params)
    consumer = queue.create_consumer(
        workers=params.get("concurrency", 4),
        periodic=False,
        initial_delay=params.get("poll", 0.1),
        check_worker_health=False,
    )
    harness.gate()
    consumer.run()


def pulse(params: Params) -> dict[str, Any]:
    _, work = opened(params)
    return harness.pulse(params, lambda number: work(number, TEXT))


def left(params: Params) -> dict[str, Any]:
    queue, _ = opened(params)
    return {"left": queue.pending_count()}


if __name__ == "__main__":
    harness.main({
        "enqueue": enqueue,
        "fill": fill,
        "worker": worker,
        "pulse": pulse,
        "left": left,
    })  # fmt: skip
