"""Awaiting handlers: tasks on one event loop, in a thread of its own or the application's."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from ..attempt import Attempt
from . import Done


class LoopSlots:
    """Each attempt is an asyncio task; as many at a time as may run. A task is stopped by
    cancelling it; one that will not be cancelled is abandoned and goes on for itself."""

    def __init__(
        self, limit: int, done: Done, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._limit = limit
        self._done = done
        self._given = loop
        self._loop: asyncio.AbstractEventLoop | None = loop
        self._thread: threading.Thread | None = None
        self._line: deque[Attempt] = deque()
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, attempt: Attempt) -> None:
        self._line.append(attempt)
        self._opened().call_soon_threadsafe(self._fill)

    def interrupt(self, attempt: Attempt) -> None:
        self._opened().call_soon_threadsafe(self._cancel, attempt)

    def abandon(self, attempt: Attempt) -> None:
        self._opened().call_soon_threadsafe(self._abandon, attempt)

    def close(self) -> None:
        loop, self._loop = self._loop, self._given
        if loop is None or self._given is not None:
            return
        loop.call_soon_threadsafe(loop.stop)

    def _opened(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_serve, args=(loop,), name="towline-loop", daemon=True
            )
            self._thread.start()
        return self._loop

    # ---- on the loop

    def _fill(self) -> None:
        while self._line and self._running < self._limit:
            attempt = self._line.popleft()
            if not attempt.begin():
                continue
            self._running += 1
            task = asyncio.get_running_loop().create_task(self._serve(attempt))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, attempt: Attempt) -> None:
        attempt.slot = asyncio.current_task()  # from now on: a task that is not begun would vanish
        if attempt.stopped_for is not None:
            attempt.slot.cancel()
        ending = await attempt.arun()
        if attempt.abandoned:
            return
        self._free()
        self._done(attempt, ending)

    def _cancel(self, attempt: Attempt) -> None:
        if attempt.slot is not None and not attempt.slot.done():
            attempt.slot.cancel()

    def _abandon(self, attempt: Attempt) -> None:
        if attempt.slot is not None and not attempt.slot.done():  # else it has ended after all
            attempt.abandoned = True
            self._free()

    def _free(self) -> None:
        self._running -= 1
        self._fill()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    while not _ran_until_stopped(loop):
        pass
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def _ran_until_stopped(loop: asyncio.AbstractEventLoop) -> bool:
    """asyncio lets SystemExit and KeyboardInterrupt of a handler's own tasks out of its loop, after
    whoever awaits them was told: other handlers have nothing to do with it."""
    try:
        loop.run_forever()
        return True
    except (SystemExit, KeyboardInterrupt):
        return False
