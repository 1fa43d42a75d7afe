"""Finding A16: awaiting calls do not stand in the line of asyncio's own threads."""

from __future__ import annotations

import asyncio
import threading

from towline import Towline
from towline.task import Task

FAR = 30.0


def test_A16_busy_threads_of_the_application_keep_no_awaiting_call_waiting(
    app: Towline, task: Task[[int], int]
) -> None:
    """Eight handlers in `asyncio.to_thread(sleep, 15)` kept `aenqueue` waiting for 14 s."""
    go = threading.Event()

    async def main() -> int:
        busy = [asyncio.ensure_future(asyncio.to_thread(go.wait, FAR)) for _ in range(64)]
        await asyncio.sleep(0)
        job = await task.aenqueue(1)
        found = await app.ajob(job.id)
        assert not any(call.done() for call in busy)
        go.set()
        await asyncio.gather(*busy)
        return found.id

    task.enqueue(0)
    assert asyncio.run(main()) == 2
