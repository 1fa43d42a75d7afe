"""Live pages: one look for all who watch, and a word to them when something has changed.

What a view gives is kept for a moment and shared: fifty open pages ask the database as often as
one. A stream of events (SSE) says "changed" at most once a second; it holds neither a thread nor a
connection to the database. While nobody watches, nothing listens.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from ..app import Towline
    from ..wakes import Wake

KEPT = 0.9  # seconds that what a view gave is good for others, and …
SHARE = 0.05  # … of the time that may be spent on looking, by all pages that are open together, …
LONGEST = 10.0  # … but seconds at most: a slow look, or a busy database, is asked more rarely
MOST_KEPT = 500
BEAT = 1.0  # seconds between two words to those who watch
SILENCE = 5.0  # seconds after which they look again though nothing was heard: time passes, too


class Kept(Struct):
    """What a view gave, or is about to give."""

    lock: threading.Lock
    until: float = 0.0
    value: Any = None


class Looks:
    """What views gave a moment ago, by what was asked."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._kept: dict[object, Kept] = {}

    def get(self, asked: object, look: Callable[[], Any]) -> Any:
        """What was given a moment ago, or a new look: one at a time, the others wait for it."""
        with self._mutex:
            if len(self._kept) > MOST_KEPT:
                now = time.monotonic()
                self._kept = {key: kept for key, kept in self._kept.items() if kept.until > now}
            kept = self._kept.setdefault(asked, Kept(threading.Lock()))
            recent = time.monotonic() - LONGEST
            watched = sum(each.until > recent for each in self._kept.values()) or 1
        with kept.lock:
            begun = time.monotonic()
            if begun >= kept.until:
                kept.value = look()
                now = time.monotonic()
                kept.until = now + min(max(KEPT, watched * (now - begun) / SHARE), LONGEST)
            return kept.value

    def forget(self) -> None:
        """Something was changed from here: whoever did it wants to see it."""
        with self._mutex:
            self._kept.clear()


class Live:
    """Tells those who watch that something has changed. Used on one event loop."""

    def __init__(self, app: Towline) -> None:
        self._app = app
        self._changed = False
        self._watchers: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None

    async def words(self) -> AsyncIterator[str]:
        """One "changed" after the other, for one who watches."""
        heard = asyncio.Event()
        self._watchers.add(heard)
        if self._task is None:
            self._task = asyncio.create_task(self._beat())
        try:
            while True:
                await heard.wait()
                heard.clear()
                yield "changed"
        finally:
            self._watchers.discard(heard)

    def ring(self, _: object = None) -> None:
        """From the thread of a wake."""
        self._changed = True

    async def _beat(self) -> None:
        """As long as somebody watches."""
        listening = Listening(self._app.runner.wakes(), self.ring)
        try:
            await asyncio.to_thread(listening.start)
            told = time.monotonic()
            while self._watchers:
                await asyncio.sleep(BEAT)
                now = time.monotonic()
                if self._changed or now - told >= SILENCE:
                    self._changed, told = False, now
                    for heard in self._watchers:
                        heard.set()
        finally:
            self._task = None
            listening.stop()


class Listening:
    """Wakes that ring while somebody watches. The loop may end while they are being started."""

    def __init__(self, wakes: list[Wake], ring: Callable[[object], None]) -> None:
        self._wakes = wakes
        self._ring = ring
        self._mutex = threading.Lock()
        self._over = False

    def start(self) -> None:
        with self._mutex:
            for wake in [] if self._over else self._wakes:
                wake.start(self._ring)

    def stop(self) -> None:
        with self._mutex:
            self._over = True
            for wake in self._wakes:
                wake.stop()
