"""procrastinate on psycopg: async handlers, ten at a time."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from procrastinate import App, PsycopgConnector

from bench.systems import harness, harness_async
from bench.systems.harness import TEXT, Params, ran

logging.getLogger("procrastinate").setLevel(logging.ERROR)


def made(params: Params) -> tuple[App, Any]:
    size = max(params.get("threads", 1), params.get("concurrency", 1)) + 1
    app = App(connector=PsycopgConnector(conninfo=params["place"], min_size=1, max_size=size))

    @app.task(name="work")  # type: ignore[untyped-decorator]
    async def work(number: int, text: str) -> None:
        ran(number)

    return app, work


async def prepare(app: App) -> None:
    rows = await app.connector.execute_query_one_async(
        "SELECT to_regclass('procrastinate_jobs') IS NOT NULL AS there"
    )
    if not rows["there"]:
        await app.schema_manager.apply_schema_async()


async def store(work: Any, count: int) -> None:
    calls = [{"number": number, "text": TEXT} for number in range(count)]
    await work.batch_defer_async(*calls)


async def enqueue(params: Params) -> dict[str, Any]:
    app, work = made(params)
    async with app.open_async():
        await prepare(app)
        return await harness_async.one_by_one(
            params, lambda number: work.defer_async(number=number, text=TEXT)
        )


async def bulk(params: Params) -> dict[str, Any]:
    app, work = made(params)
    async with app.open_async():
        await prepare(app)
        await store(work, harness.WARM)
        return await harness_async.timed(params["count"], lambda: store(work, params["count"]))


async def fill(params: Params) -> None:
    app, work = made(params)
    async with app.open_async():
        await prepare(app)
        if params["count"]:
            await store(work, params["count"])


async def worker(params: Params) -> None:
    app, _ = made(params)
    async with app.open_async():
        await prepare(app)
        harness.gate()
        await app.run_worker_async(concurrency=params.get("concurrency", 10))


async def pulse(params: Params) -> dict[str, Any]:
    app, work = made(params)
    async with app.open_async():
        return await harness_async.pulse(
            params, lambda number: work.defer_async(number=number, text=TEXT)
        )


async def left(params: Params) -> dict[str, Any]:
    app, _ = made(params)
    async with app.open_async():
        row = await app.connector.execute_query_one_async(
            "SELECT count(*) AS n FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        )
        return {"left": row["n"]}


if __name__ == "__main__":
    harness.main({
        "enqueue": lambda params: asyncio.run(enqueue(params)),
        "bulk": lambda params: asyncio.run(bulk(params)),
        "fill": lambda params: asyncio.run(fill(params)),
        "worker": lambda params: asyncio.run(worker(params)),
        "pulse": lambda params: asyncio.run(pulse(params)),
        "left": lambda params: asyncio.run(left(params)),
    })  # fmt: skip
