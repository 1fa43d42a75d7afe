"""Wake-ups through NATS: plain subjects, nothing is kept there.

Its client is asynchronous, so a thread of ours runs an event loop for it, also for telling.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Collection
from typing import Any

from nats.aio.client import Client

from . import Changed, Ring, pack, unpack
from .thread import BackOff, WakeThread

log = logging.getLogger("towline.wakes")

MOST_OWED = 100  # hints that wait for the server to come back
FLUSH_TIMEOUT = 2  # seconds for what is still to be told when we stop


class NatsWake:
    """Tells and hears through one NATS subject; its own words it does not hear."""

    def __init__(self, url: str, subject: str) -> None:
        self._url = url
        self._subject = subject
        self._thread = WakeThread("nats")
        self._ring: Ring | None = None
        self._owed: deque[bytes] = deque(maxlen=MOST_OWED)
        # At the end of the program, too: one that tells and ends at once is heard.
        weakref.finalize(self, self._thread.stop)

    def start(self, ring: Ring) -> None:
        self._thread.stop()  # one that only tells
        self._ring = ring
        self._thread.start(self._run)

    def on_change(self, changed: Changed) -> None:
        self._thread.on_change = changed

    def stop(self) -> None:
        self._thread.stop()  # which tells what is still owed

    def tell(self, queues: Collection[str]) -> None:
        """Leave it to the thread, which is started if need be; never waits."""
        self._owed.append(pack(queues))
        self._thread.ensure(self._run)
        self._thread.poke()

    # ---- in the thread

    def _run(self) -> None:
        asyncio.run(self._live())

    async def _live(self) -> None:
        poked = asyncio.Event()

        def answer() -> None:
            self._thread.clear()
            poked.set()

        asyncio.get_running_loop().add_reader(self._thread.descriptor, answer)
        back_off = BackOff()
        while self._owed or not self._thread.stopping:
            client = Client()
            try:
                await _connect(client, self._url, poked)
                back_off.reset()
                self._thread.restored()
                await self._serve(client, poked)
                if self._thread.lost():
                    log.info("the connection to NATS was closed, trying again")
            except Exception as error:  # whatever the client raises: try again
                if self._thread.lost():
                    log.info("no connection to NATS, trying again: %s", error)
            finally:
                await client.close()
            if self._thread.stopping:
                return
            await self._pause(back_off(), poked)

    async def _pause(self, seconds: float, poked: asyncio.Event) -> None:
        """Wait the whole time in spite of pokes, unless we are to stop."""
        try:
            async with asyncio.timeout(seconds):
                while not self._thread.stopping:
                    poked.clear()
                    await poked.wait()
        except TimeoutError:
            pass

    async def _serve(self, client: Client, poked: asyncio.Event) -> None:
        """Until the connection closes, or we are to stop."""
        ring = self._ring
        if ring is not None:

            async def hear(heard: Any) -> None:
                ring(unpack(heard.data))

            await client.subscribe(self._subject, cb=hear)
            for _ in range(2):  # the client lets the first ping overtake the subscription
                await client.flush(5)
            ring(None)
        while not client.is_closed:
            poked.clear()
            hints = dict.fromkeys(self._owed.popleft() for _ in range(len(self._owed)))
            for hint in hints:
                await client.publish(self._subject, hint)
            if self._thread.stopping:
                await client.flush(FLUSH_TIMEOUT)
                return
            await poked.wait()


async def _connect(client: Client, url: str, poked: asyncio.Event) -> None:
    """Connect once, or raise; poke when the connection is closed."""
    connecting = True

    async def fail(error: Exception) -> None:
        if connecting:  # or it would go on trying by itself
            raise error

    async def closed() -> None:
        poked.set()

    await client.connect(
        url, allow_reconnect=False, connect_timeout=2, ping_interval=15, max_outstanding_pings=2,
        no_echo=True, name="towline", error_cb=fail, closed_cb=closed,
    )  # fmt: skip
    connecting = False
