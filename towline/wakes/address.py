"""The wake that a URL names. Its client is imported only now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InvalidSetting
from ..secret import masked

if TYPE_CHECKING:
    from . import Wake


def open_wake(url: str, channel: str) -> Wake:
    """A wake through Redis or NATS, not started; `channel` keeps apps apart that share one."""
    scheme = url.partition("://")[0]
    if scheme in ("redis", "rediss", "unix"):
        try:
            from .redis import RedisWake
        except ImportError as error:
            raise _missing("Redis", "redis", error) from error
        return RedisWake(url, channel)
    if scheme in ("nats", "tls"):
        try:
            from .nats import NatsWake
        except ImportError as error:
            raise _missing("NATS", "nats", error) from error
        return NatsWake(url, channel)
    raise InvalidSetting(
        f"{masked(url)!r} is no server for wake-ups: use redis://, rediss://, "
        "unix:///path/to/redis.sock, nats:// or tls:// (NATS)"
    )


def _missing(server: str, extra: str, error: ImportError) -> InvalidSetting:
    return InvalidSetting(f"{server} needs a client: pip install -e '.[{extra}]' ({error})")
