"""The awaiting half of the harness: `threads` are as many tasks of one event loop."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.systems.harness import PAUSE, WARM, Params, gate, written

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
    """Store one job at a time, in silence, and note when each commit had returned."""
    returned = []
    for number in range(int(params["count"])):
        await asyncio.sleep(random.uniform(*PAUSE))
        await one(number)
        returned.append((number, time.monotonic_ns()))
    return {"returned": returned}


def stop_event() -> asyncio.Event:
    """Set by SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop
