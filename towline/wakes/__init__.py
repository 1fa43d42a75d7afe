"""Wake-ups: hints that there may be work, or that something ended. Losing one is harmless.

An engine has a wake of its own (`sqlite/watch`, `postgres/listen`); Redis and NATS are extras.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

Ring = Callable[[Collection[str] | None], None]
"""What a wake calls: with the queues that got work, or None when it cannot say."""


class Wake(Protocol):
    """Tells this process what others did, and others what this process did."""

    def start(self, ring: Ring) -> None:
        """Begin to listen, in a thread of its own that runs no user code; never raises for a
        server that is away, but tries again and rings once when it is back."""
        ...

    def stop(self) -> None:
        """End the thread and close what it opened; a second call does nothing."""
        ...

    def tell(self, queues: Collection[str]) -> None:
        """Tell the others, after a commit. Never raises and never blocks for long: a hint."""
        ...
