"""chancy with its asyncio executor, a hundred at a time, polling eagerly."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from chancy import Chancy, Queue, Worker, job

from bench.systems import harness, harness_async
from bench.systems.harness import TEXT, Params, ran

logging.getLogger("chancy").setLevel(logging.ERROR)
QUEUE = "bench"


@job(queue=QUEUE)  # type: ignore[untyped-decorator]
async def work(*, number: int, text: str) -> None:
    ran(number)


def call(number: int) -> Any:
    return work.job.with_kwargs(number=number, text=TEXT)


def made(params: Params) -> Chancy:
    size = max(params.get("threads", 1), 10)
    return Chancy(params["place"], max_connection_pool_size=size)


async def prepare(chancy: Chancy, params: Params) -> None:
    await chancy.migrate()
    queue = Queue(
        name=QUEUE,
        concurrency=params.get("concurrency", 100),
        executor=Chancy.Executor.Async,
        eager_polling=True,
        polling_interval=1,
    )
    await chancy.declare(queue, upsert=True)


async def store(chancy: Chancy, count: int) -> None:
    async for _ in chancy.push_many([call(number) for number in range(count)]):
        pass


async def enqueue(params: Params) -> dict[str, Any]:
    async with made(params) as chancy:
        await prepare(chancy, params)
        return await harness_async.one_by_one(params, lambda number: chancy.push(call(number)))


async def bulk(params: Params) -> dict[str, Any]:
    async with made(params) as chancy:
        await prepare(chancy, params)
        await store(chancy, harness.WARM)
        return await harness_async.timed(params["count"], lambda: store(chancy, params["count"]))


async def fill(params: Params) -> None:
    async with made(params) as chancy:
        await prepare(chancy, params)
        await store(chancy, params["count"])


async def worker(params: Params) -> None:
    async with made(params) as chancy:
        await prepare(chancy, params)
        harness.gate()
        async with Worker(chancy) as hand:
            await hand.wait_for_shutdown()


async def pulse(params: Params) -> dict[str, Any]:
    async with made(params) as chancy:
        return await harness_async.pulse(params, lambda number: chancy.push(call(number)))


async def left(params: Params) -> dict[str, Any]:
    async with made(params) as chancy, chancy.pool.connection() as connection:
        found = await connection.execute(
            "SELECT count(*) AS n FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed')"
        )
        row = await found.fetchone()
        return {"left": row["n"] if isinstance(row, dict) else row[0]}


if __name__ == "__main__":
    harness.main({
        "enqueue": lambda params: asyncio.run(enqueue(params)),
        "bulk": lambda params: asyncio.run(bulk(params)),
        "fill": lambda params: asyncio.run(fill(params)),
        "worker": lambda params: asyncio.run(worker(params)),
        "pulse": lambda params: asyncio.run(pulse(params)),
        "left": lambda params: asyncio.run(left(params)),
    })  # fmt: skip
