"""pgqueuer on asyncpg and uvloop, claiming a hundred at a time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Job, Queries, QueueManager

from bench.systems import harness, harness_async
from bench.systems.harness import TEXT, Params, ran


def run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def opened(params: Params, connections: int = 1) -> Queries:
    if connections > 1:
        pool = await asyncpg.create_pool(
            params["place"], min_size=connections, max_size=connections
        )
        return Queries(AsyncpgPoolDriver(pool))
    return Queries(AsyncpgDriver(await asyncpg.connect(params["place"])))


async def ready(params: Params, connections: int = 1) -> Queries:
    queries = await opened(params, connections)
    if not await queries.has_table("pgqueuer"):
        await queries.install()
    return queries


def payload(number: int) -> bytes:
    return json.dumps({"number": number, "text": TEXT}).encode()


async def store(queries: Queries, numbers: range) -> None:
    count = len(numbers)
    await queries.enqueue(["work"] * count, [payload(n) for n in numbers], [0] * count)


async def enqueue(params: Params) -> dict[str, Any]:
    queries = await ready(params, params.get("threads", 1))
    return await harness_async.one_by_one(params, lambda n: queries.enqueue("work", payload(n)))


async def bulk(params: Params) -> dict[str, Any]:
    queries = await ready(params)
    await store(queries, range(harness.WARM))
    return await harness_async.timed(
        params["count"], lambda: store(queries, range(params["count"]))
    )


async def fill(params: Params) -> None:
    queries = await ready(params)
    if params["count"]:
        await store(queries, range(params["count"]))


async def worker(params: Params) -> None:
    queries = await ready(params)
    manager = QueueManager(queries)

    @manager.entrypoint("work")  # type: ignore[untyped-decorator]
    async def work(job: Job) -> None:
        ran(json.loads(job.payload)["number"])

    harness.gate()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(15, manager.shutdown.set)
    await manager.run(batch_size=params.get("batch", 100))


async def pulse(params: Params) -> dict[str, Any]:
    queries = await ready(params)
    return await harness_async.pulse(params, lambda n: queries.enqueue("work", payload(n)))


async def left(params: Params) -> dict[str, Any]:
    connection = await asyncpg.connect(params["place"])
    return {"left": await connection.fetchval("SELECT count(*) FROM pgqueuer")}


if __name__ == "__main__":
    harness.main({
        "enqueue": lambda params: run(enqueue(params)),
        "bulk": lambda params: run(bulk(params)),
        "fill": lambda params: run(fill(params)),
        "worker": lambda params: run(worker(params)),
        "pulse": lambda params: run(pulse(params)),
        "left": lambda params: run(left(params)),
    })  # fmt: skip
