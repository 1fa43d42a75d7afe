"""litequeue as shipped: WAL, synchronous NORMAL.

It has no worker: this one pops, runs and says done.
"""

from __future__ import annotations

import json
import time
from typing import Any

from litequeue import LiteQueue

from bench.systems import harness
from bench.systems.harness import TEXT, Params, ran


def put(queue: LiteQueue, number: int) -> None:
    queue.put(json.dumps({"number": number, "text": TEXT}))


def enqueue(params: Params) -> dict[str, Any]:
    queue = LiteQueue(params["place"])
    return harness.one_by_one(params, lambda number: put(queue, number))


def fill(params: Params) -> None:
    queue = LiteQueue(params["place"])
    queue.conn.execute("PRAGMA synchronous = OFF")
    for number in range(params["count"]):
        put(queue, number)


def worker(params: Params) -> None:
    queue = LiteQueue(params["place"])
    harness.gate()
    while True:
        message = queue.pop()
        if message is None:
            time.sleep(0.05)
            continue
        ran(json.loads(message.data)["number"])
        queue.done(message.message_id)


def left(params: Params) -> dict[str, Any]:
    rows = LiteQueue(params["place"]).conn.execute("SELECT count(*) FROM Queue WHERE status < 2")
    return {"left": rows.fetchone()[0]}


if __name__ == "__main__":
    harness.main({"enqueue": enqueue, "fill": fill, "worker": worker, "left": left})
