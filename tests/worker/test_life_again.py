"""W1, W2, W5: a worker that begins again, and settings it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.database import Database
from tests.worker.gate import LIMIT
from windlass import Windlass
from windlass.errors import InvalidSetting
from windlass.worker import STOPPED


@pytest.mark.parametrize(
    "settings",
    [
        {"prefetch": 1.5},
        {"queues": [""]},
        {"queues": [None]},
        {"name": "\x00"},
        {"name": "x" * 201},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(
    app: Windlass, sqlite: Database, settings: Any
) -> None:
    """W5: before anything begins. A name with NUL never registers on PostgreSQL."""
    with pytest.raises(InvalidSetting):
        app.worker(**settings)


def test_the_exit_code_is_that_of_this_run(app: Windlass) -> None:
    """W1: a worker that was once stopped at once is not for ever."""
    worker = app.worker(drain=True)
    worker.start()
    worker.stop(now=True)
    assert worker.run() == STOPPED


def test_a_worker_that_ran_on_an_applications_loop_may_run_without_one(app: Windlass) -> None:
    """W1, W2: the loop of the first run is closed, and must not be used again."""

    @app.task
    async def where() -> int:
        return id(asyncio.get_running_loop())

    worker = app.worker()

    async def application() -> None:
        async with worker:
            pass

    asyncio.run(application())
    with worker:
        assert where.enqueue().result(LIMIT)
