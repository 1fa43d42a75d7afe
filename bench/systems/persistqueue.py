"""persist-queue's SQLiteAckQueue as shipped: WAL, synchronous FULL, one process.

It has no worker: this one gets, runs and acknowledges. What runs it must also be what opened it.
"""

from __future__ import annotations

import os
import time
from typing import Any

from persistqueue import SQLiteAckQueue
from persistqueue.exceptions import Empty

from bench.systems import harness
from bench.systems.harness import TEXT, Params, ran


def opened(params: Params) -> SQLiteAckQueue:
    folder, name = os.path.split(params["place"])
    return SQLiteAckQueue(folder, db_file_name=name, multithreading=True)


def enqueue(params: Params) -> dict[str, Any]:
    queue = opened(params)
    return harness.one_by_one(params, lambda number: queue.put({"number": number, "text": TEXT}))


def fill(params: Params) -> None:
    queue = opened(params)
    queue._putter.execute("PRAGMA synchronous = OFF")
    for number in range(params["count"]):
        queue.put({"number": number, "text": TEXT})


def worker(params: Params) -> None:
    queue = opened(params)
    harness.gate()
    while True:
        try:
            item = queue.get(block=False)
        except Empty:
            time.sleep(0.05)
            continue
        ran(item["number"])
        queue.ack(item)


def left(params: Params) -> dict[str, Any]:
    queue = opened(params)
    return {"left": queue.ready_count() + queue.unack_count()}


if __name__ == "__main__":
    harness.main({"enqueue": enqueue, "fill": fill, "worker": worker, "left": left})
