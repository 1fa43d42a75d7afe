"""Wake-ups: hints that there may be work, or that something ended. Losing one is harmless.

An engine has a wake of its own (`sqlite/watch`, `postgres/listen`). Redis and NATS are extras: a
client is imported only when a URL names it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from msgspec import json

from ..errors import InvalidSetting
from ..secret import masked

Ring = Callable[[Collection[str] | None], bool | None]
"""What a wake calls: with the queues that got work, or None when it cannot say. The answer False
means that it need not hurry: what it told of will be looked at anyway."""
Changed = Callable[[str, str], None]
"""What a wake calls when its server is away, or back: with its name, and "lost" or "restored"."""


class Wake(Protocol):
    """Carries hints between processes: what others commit, and what this one does."""

    def start(self, ring: Ring) -> None:
        """Begin to listen, in a thread of its own that runs no user code; never raises for a
        server that is away, but tries again and rings once when it is back."""

    def on_change(self, changed: Changed) -> None:
        """Call this when what it hears through is lost or restored; before it starts."""

    def stop(self) -> None:
        """End the thread and close what it opened; a second call does nothing."""

    def tell(self, queues: Collection[str]) -> None:
        """Hint at work in these queues, after a commit. Never raises, never blocks for long."""


def open_wake(url: str, channel: str) -> Wake:
    """A wake through Redis or NATS, not started; `channel` keeps apps apart that share one."""
    scheme = url.partition("://")[0]
    extra = "nats" if scheme in ("nats", "tls") else "redis"
    try:
        if scheme in ("redis", "rediss", "unix"):
            from .redis import RedisWake

            return RedisWake(url, channel)
        if scheme in ("nats", "tls"):
            from .nats import NatsWake

            return NatsWake(url, channel)
    except ImportError as error:
        raise InvalidSetting(
            f"{scheme}:// needs a client: pip install -e '.[{extra}]' ({error})"
        ) from error
    raise InvalidSetting(
        f"{masked(url)!r} is no server for wake-ups: use redis://, rediss://, "
        "unix:///path/to/redis.sock, nats:// or tls:// (NATS)"
    )


def pack(queues: Collection[str]) -> bytes:
    """What is sent through a server: a JSON list of queues; an empty one cannot say which."""
    return json.encode(sorted(queues))


def unpack(data: bytes) -> Collection[str] | None:
    """The queues, as a ring wants them; None also for what is not ours."""
    try:
        return json.decode(data, type=set[str]) or None
    except ValueError:
        return None
