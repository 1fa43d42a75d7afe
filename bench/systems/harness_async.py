"""The awaiting half of the harness: `threads` are as many tasks of one event loop."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.systems.harness import PATIENCE, WARM, Params, gate, pause, size, written

One = Callable[[int], Awaitable[object]]


async def timed(count: int, work: Callable[[], Awaitable[object]]) -> dict[str, Any]:
    gate()
    wrote, cpu, wall = written(), time.process_time(), time.perf_counter()
    await work()
    seconds = time.perf_counter() - wall
    return {
        "count": count,
        "seconds": seconds,
        "cpu": time.process_time() - cpu,
        "written": written() - wrote,
    }


async def one_by_one(params: Params, one: One) -> dict[str, Any]:
    """`one(number)` for each number, from one task or several."""
    count, tasks = int(params["count"]), int(params.get("threads", 1))
    await asyncio.gather(*(one(-n - 1) for n in range(tasks)))
    for number in range(WARM):
        await one(-number - 1)
    share = count // tasks

    async def part(first: int) -> None:
        for number in range(first, first + share):
            await one(number)

    return await timed(
        share * tasks, lambda: asyncio.gather(*(part(n * share) for n in range(tasks)))
    )


async def pulse(params: Params, one: One) -> dict[str, Any]:
    """Store one job at a time, each when the one before has run, and note when its commit had
    returned."""
    returned = []
    for number in range(int(params["count"])):
        await asyncio.sleep(pause(params))
        before = size(params)
        await one(number)
        returned.append((number, time.monotonic_ns()))
        deadline = time.monotonic() + PATIENCE
        while size(params) == before and time.monotonic() < deadline:  # noqa: ASYNC110 - a file
            await asyncio.sleep(0.005)
    return {"returned": returned}


def stop_event() -> asyncio.Event:
    """Set by SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop
