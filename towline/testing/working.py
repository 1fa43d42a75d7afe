"""A real worker beside a test, for what one thread cannot show: timeouts, processes, stops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Unpack

from msgspec.structs import replace

from ..app import Towline
from ..worker import Worker
from ..worker.settings import WorkerSettings
from .isolation import work_by

GRACE = 5.0  # seconds that handlers may go on when the test is over


@contextmanager
def real_worker(app: Towline, **settings: Unpack[WorkerSettings]) -> Iterator[Worker]:
    """Run a worker as long as the block lasts, by the real time: what a `Clock` says does not wake
    one that sleeps until something is due."""
    before = app.settings
    if before.engine.clock is not None:
        work_by(app, replace(before, engine=replace(before.engine, clock=None)))
    try:
        with app.worker(**WorkerSettings(**{"grace": GRACE, **settings})) as worker:
            yield worker
    finally:
        if before.engine.clock is not None:
            work_by(app, before)
