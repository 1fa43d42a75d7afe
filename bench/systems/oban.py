"""oban (the Python one) on psycopg's pool: async workers, fifty at a time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

from oban import Job, Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool

from bench.systems import harness, harness_async
from bench.systems.harness import TEXT, Params, ran

logging.getLogger("oban").setLevel(logging.ERROR)


@worker(queue="default")
class Work:
    async def process(self, job: Job) -> None:
        ran(job.args["number"])


async def opened(stack: AsyncExitStack, params: Params, **options: Any) -> tuple[Any, Oban]:
    """A pool whose tables are there, and an Oban that only enqueues unless told otherwise."""
    size = max(params.get("threads", 1), 10)
    pool = AsyncConnectionPool(params["place"], min_size=2, max_size=size, open=False)
    await stack.enter_async_context(pool)
    async with pool.connection() as connection:
        found = await connection.execute("SELECT to_regclass('oban_jobs')")
        row = await found.fetchone()
    if row is None or row[0] is None:
        await install(pool)
    return pool, Oban(pool=pool, **options)


def job(number: int) -> Job:
    return Work.new({"number": number, "text": TEXT})  # type: ignore[attr-defined]


async def store(oban: Oban, count: int) -> None:
    for first in range(0, count, 1000):
        await oban.enqueue_many([job(n) for n in range(first, min(first + 1000, count))])


async def enqueue(params: Params) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        _, oban = await opened(stack, params)
        return await harness_async.one_by_one(params, lambda number: oban.enqueue(job(number)))


async def bulk(params: Params) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        _, oban = await opened(stack, params)
        await store(oban, harness.WARM)
        return await harness_async.timed(params["count"], lambda: store(oban, params["count"]))


async def fill(params: Params) -> None:
    async with AsyncExitStack() as stack:
        _, oban = await opened(stack, params)
        await store(oban, params["count"])


async def work(params: Params) -> None:
    async with AsyncExitStack() as stack:
        queues = {"default": params.get("concurrency", 50)}
        _, oban = await opened(stack, params, queues=queues)
        harness.gate()
        stop = harness_async.stop_event()
        await stack.enter_async_context(oban)
        await stop.wait()


async def pulse(params: Params) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        _, oban = await opened(stack, params)
        return await harness_async.pulse(params, lambda number: oban.enqueue(job(number)))


async def left(params: Params) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        pool, _ = await opened(stack, params)
        async with pool.connection() as connection:
            found = await connection.execute(
                "SELECT count(*) FROM oban_jobs WHERE state NOT IN ('completed', 'cancelled')"
            )
            row = await found.fetchone()
        return {"left": row[0]}


if __name__ == "__main__":
    harness.main({
        "enqueue": lambda params: asyncio.run(enqueue(params)),
        "bulk": lambda params: asyncio.run(bulk(params)),
        "fill": lambda params: asyncio.run(fill(params)),
        "worker": lambda params: asyncio.run(work(params)),
        "pulse": lambda params: asyncio.run(pulse(params)),
        "left": lambda params: asyncio.run(left(params)),
    })  # fmt: skip
