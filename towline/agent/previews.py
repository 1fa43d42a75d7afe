"""What a call on many would do, kept until it is confirmed: the very jobs that were counted, under
a token that is good once, for its own action and filter, and for five minutes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from threading import Lock
from typing import Any

from msgspec import Struct

GOOD_FOR = 300.0  # seconds
MOST = 100  # previews that are kept; the oldest go


class Preview(Struct, frozen=True):
    """Jobs that an action was announced for."""

    action: str
    filter: dict[str, Any]
    ids: Sequence[int]
    until: float


class Previews:
    """Those of one server. No token is written anywhere: another process knows none of them."""

    def __init__(self) -> None:
        self._kept: dict[str, Preview] = {}
        self._lock = Lock()

    def keep(self, action: str, filter: dict[str, Any], ids: Sequence[int]) -> str:
        """A token for these jobs."""
        token = secrets.token_urlsafe(12)
        with self._lock:
            self._kept[token] = Preview(action, filter, ids, time.monotonic() + GOOD_FOR)
            while len(self._kept) > MOST:
                del self._kept[next(iter(self._kept))]
        return token

    def look(self, token: str, action: str, filter: dict[str, Any]) -> Preview | None:
        """What a token stands for; None when it is for something else, or over."""
        with self._lock:
            return self._fitting(token, action, filter)

    def take(self, token: str, action: str, filter: dict[str, Any]) -> Preview | None:
        """The same, for the one time that it is good for."""
        with self._lock:
            found = self._fitting(token, action, filter)
            if found is not None:
                del self._kept[token]
            return found

    def _fitting(self, token: str, action: str, filter: dict[str, Any]) -> Preview | None:
        found = self._kept.get(token)
        if found is None or (found.action, found.filter) != (action, filter):
            return None
        return found if time.monotonic() < found.until else None
