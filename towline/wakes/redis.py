"""Wake-ups through Redis: publish and subscribe, nothing is kept there."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from contextlib import closing
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..errors import InvalidSetting
from ..secret import masked
from . import Changed, Ring, pack, unpack
from .thread import BackOff, WakeThread

log = logging.getLogger("towline.wakes")

STOP_CHECK = 0.5  # seconds in which the thread notices that it should stop
SILENCE = 1.0  # seconds in which nothing is told after that has failed
HEARING: dict[str, Any] = {
    "socket_connect_timeout": 5.0, "socket_timeout": 5.0, "socket_keepalive": True,
    "health_check_interval": 15, "retry": Retry(NoBackoff(), 0),
}  # fmt: skip
# Short, because an enqueue waits; and once again at once, for a server that was restarted.
TELLING: dict[str, Any] = {
    "socket_connect_timeout": 0.25, "socket_timeout": 0.25, "socket_keepalive": True,
    "retry": Retry(NoBackoff(), 1), "retry_on_error": [redis.ConnectionError],
}  # fmt: skip


class RedisWake:
    """Tells and hears through one Redis channel. What this process tells it hears too."""

    def __init__(self, url: str, channel: str) -> None:
        self._url = url
        self._channel = channel
        self._thread = WakeThread("redis")
        self._publisher = self._client(TELLING)  # opens a connection when used; knows of forks
        self._silent_until = 0.0  # 0 unless telling has failed

    def start(self, ring: Ring) -> None:
        self._thread.start(lambda: self._run(ring))

    def on_change(self, changed: Changed) -> None:
        self._thread.on_change = changed

    def stop(self) -> None:
        self._thread.stop()
        self._publisher.close()

    def tell(self, queues: Collection[str]) -> None:
        """Publish; after a failure nothing for a second, so that not every enqueue waits."""
        if time.monotonic() < self._silent_until:
            return
        try:
            self._publisher.publish(self._channel, pack(queues))
        except Exception as error:  # whatever the client raises: it was a hint
            if not self._silent_until:
                log.warning(
                    "Redis cannot be told of new work; others look by themselves: %s", error
                )
            self._silent_until = time.monotonic() + SILENCE
        else:
            self._silent_until = 0.0

    def _client(self, settings: dict[str, Any]) -> Any:
        try:
            return redis.Redis.from_url(self._url, **settings)
        except (ValueError, TypeError):  # their text may quote a part of the password
            raise InvalidSetting(
                f"{masked(self._url)!r} is not a URL of Redis, such as redis://host:6379/0"
            ) from None

    def _run(self, ring: Ring) -> None:
        back_off = BackOff()
        while not self._thread.stopping:
            try:
                with closing(self._client(HEARING)) as client, closing(client.pubsub()) as ear:
                    ear.subscribe(self._channel)
                    while not self._thread.stopping:
                        heard = ear.get_message(timeout=STOP_CHECK)
                        if heard is None:
                            continue
                        if heard["type"] == "subscribe":  # also after it reconnected by itself
                            ring(None)
                            back_off.reset()
                            self._thread.restored()
                        elif heard["type"] == "message":
                            ring(unpack(heard["data"]))
            except Exception as error:  # whatever the client raises: try again
                if self._thread.lost():
                    log.info("not listening to Redis, trying again: %s", error)
                self._thread.pause(back_off())
