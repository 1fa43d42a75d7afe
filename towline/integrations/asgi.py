"""Towline in an ASGI application (FastAPI, Starlette, Litestar): opened and closed with it.

A worker may run beside the requests, on the application's own loop. How long it has at the end is
the server's to say: whoever is cancelled while its handlers end hands them back at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any

from ..app import Towline
from ..errors import InvalidSetting, StoreUnavailable
from ..executor import in_thread
from ..naming import check_known
from ..worker import Worker
from ..worker.settings import WorkerSettings, check_settings

log = logging.getLogger("towline")

# Seconds that handlers may go on when the server stops: `docker stop` leaves ten for everything.
GRACE = 5.0

State = dict[str, Any]
Lifespan = Callable[[Any], AbstractAsyncContextManager[State]]


def lifespan(
    app: Towline,
    *,
    worker: WorkerSettings | None = None,
    inside: Callable[[Any], AbstractAsyncContextManager[Any]] | None = None,
) -> Lifespan:
    """Open the app when the server starts and close it when it stops; requests find it in their
    state as `towline`.

    `worker`: the settings of a worker that runs as long, its grace 5 s unless they say more.
    `inside`: a lifespan of your own, which begins after it and ends before it. A database that is
    only away does not stop the server: requests fail until it is there.
    """
    settings = None if worker is None else WorkerSettings(**{"grace": GRACE, **worker})
    if settings is not None:
        check_known("worker=", settings, WorkerSettings.__annotations__)
        if settings.get("drain") or settings.get("max_jobs") is not None:
            raise InvalidSetting("a worker beside requests ends with them: no drain, no max_jobs")
        check_settings((), **settings)

    @asynccontextmanager
    async def around(site: Any) -> AsyncIterator[State]:
        state: State = {"towline": app}
        if (shared := getattr(site, "state", None)) is not None:
            shared.towline = app  # Litestar has no other state
        await _open(app)
        try:
            async with nullcontext() if settings is None else _working(app.worker(**settings)):
                async with nullcontext() if inside is None else inside(site) as more:
                    yield {**state, **(more if isinstance(more, Mapping) else {})}
        finally:
            await app.aclose()

    return around


async def _open(app: Towline) -> None:
    try:
        await in_thread(app.runner.prepare)
    except StoreUnavailable as error:
        log.warning("the database cannot be reached: %s", error)


@asynccontextmanager
async def _working(worker: Worker) -> AsyncIterator[None]:
    await worker.__aenter__()
    now = False
    try:
        yield
    except asyncio.CancelledError:  # the server goes without waiting for anybody
        now = True
        raise
    finally:
        await _stop(worker, now)
        worker.loop = None


async def _stop(worker: Worker, now: bool) -> None:
    try:
        await in_thread(partial(worker.stop, now=now))
    except asyncio.CancelledError:  # its time is up
        await in_thread(partial(worker.stop, now=True))
        raise
