"""A ring that remembers what it was called with, and lets a test wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

FAR = 30.0  # seconds after which something will not come any more

Queues = Collection[str] | None


class Rings:
    """Rung by a wake; asks `look` at each ring what can be seen then."""

    def __init__(self, look: Callable[[], int] = lambda: 0) -> None:
        self._look = look
        self._condition = threading.Condition()
        self._heard: list[Queues] = []
        self.seen = 0  # at the latest ring

    def __call__(self, queues: Queues) -> None:
        seen = self._look()
        with self._condition:
            self._heard.append(queues)
            self.seen = seen
            self._condition.notify_all()

    def wait_until_seen(self, number: int) -> None:
        """Until a ring has come with so much to be seen."""
        with self._condition:
            assert self._condition.wait_for(lambda: self.seen >= number, FAR), (
                f"the last of {len(self._heard)} rings saw {self.seen}, none saw {number}"
            )

    def take(self) -> list[Queues]:
        """Wait for a ring, and take those there are."""
        with self._condition:
            assert self._condition.wait_for(lambda: self._heard, FAR), "no ring"
            heard, self._heard = self._heard, []
            return heard

    def take_until(self, last: Queues) -> list[Queues]:
        """Take rings until this one has come."""
        heard = self.take()
        while last not in heard:
            heard += self.take()
        return heard
