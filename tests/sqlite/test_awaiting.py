"""Finding A16: awaiting calls do not stand in the line of asyncio's own threads. E11: nor does a
thread that goes on after its task was cancelled leave anything open."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

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


@pytest.mark.parametrize("level", ["", None])
def test_E11_O6_a_task_cancelled_while_aiosqlite_begins_its_transaction_leaves_none(
    app: Towline, database: Path, level: str | None
) -> None:
    """That of `ctx.transaction(on=…)`, such as one that waits for another writer."""
    free = threading.Event()

    async def main() -> None:
        async with aiosqlite.connect(database, isolation_level=level) as raw:
            connection = app.runner.engine.recognise(raw)
            thread: Any = raw
            busy = asyncio.create_task(thread._execute(free.wait, FAR))
            beginning = asyncio.create_task(connection.abegin())
            await asyncio.sleep(0)
            beginning.cancel()
            await asyncio.sleep(0)
            free.set()
            with pytest.raises(asyncio.CancelledError):
                await beginning
            await busy
            assert not raw.in_transaction

    app.migrate()
    asyncio.run(main())
