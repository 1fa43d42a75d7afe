"""Callers of `result()`: woken when a chain ends, instead of polling."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterator

from ..naming import check_patience
from . import Wake

FIRST, GROWTH = 0.001, 1.6  # seconds between looks
LONGEST, DEAF = 1.0, 0.25  # at most: a wake that is lost costs no more; without a wake
LISTEN = 0.01  # seconds of waiting after which a caller listens to a wake too


class Waiting:
    """One wake for all waiters of an app; it begins with the first who has to wait for long."""

    def __init__(self, new_wake: Callable[[], Wake | None]) -> None:
        self._new_wake = new_wake
        self._mutex = threading.Lock()
        self._wake: Wake | None = None
        self.rings: set[Callable[[], object]] = set()  # of those who have waited for a while

    def looks(self, timeout: float | None) -> Generator[None]:
        """Once for each look to take: at first, after each change, at last when time is over."""
        check_patience(timeout)
        bell = threading.Event()
        try:
            yield
            for pause in self._pauses(timeout, bell.set):
                bell.wait(pause)
                bell.clear()
                yield
        finally:
            self.rings.discard(bell.set)

    async def alooks(self, timeout: float | None) -> AsyncGenerator[None]:
        import asyncio  # who awaits this has it

        check_patience(timeout)
        rung = asyncio.Event()
        loop = asyncio.get_running_loop()

        def ring() -> None:
            try:
                loop.call_soon_threadsafe(rung.set)
            except RuntimeError:  # the loop has ended, and its waiters with it
                self.rings.discard(ring)

        try:
            yield
            for pause in self._pauses(timeout, ring):
                try:
                    await asyncio.wait_for(rung.wait(), pause)
                except TimeoutError:
                    pass
                rung.clear()
                yield
        finally:
            self.rings.discard(ring)

    def close(self) -> None:
        """End the wake; the next who waits begins another."""
        with self._mutex:
            wake, self._wake = self._wake, None
        if wake is not None:
            wake.stop()

    def _pauses(self, timeout: float | None, ring: Callable[[], object]) -> Iterator[float]:
        """How long to wait at most before each look; ends with the time."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = FIRST
        while end is None or time.monotonic() < end:
            if pause > LISTEN and ring not in self.rings:
                self._join(ring)
                yield 0.0  # what happened before it listened would not be heard
            yield pause if end is None else max(min(pause, end - time.monotonic()), 0.0)
            pause = min(pause * GROWTH, DEAF if self._wake is None else LONGEST)

    def _join(self, ring: Callable[[], object]) -> None:
        with self._mutex:
            self.rings.add(ring)
            if self._wake is None and (wake := self._new_wake()) is not None:
                try:
                    wake.start(self.ring)
                    self._wake = wake
                except RuntimeError:  # no thread to spare: one looks a little more often instead
                    pass

    def ring(self, queues: Collection[str] | None = None) -> None:
        """Something ended: all look again."""
        for ring in list(self.rings):
            ring()


def stood_still(timeout: float | None, instead: str) -> str:
    """What to say of a blocking wait that was in vain, if it kept an event loop from running: the
    handlers of a worker on that loop could not run either."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or not timeout:
        return ""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return f". The event loop of this thread stood still meanwhile: say {instead}"
