"""The settings of a worker."""

from __future__ import annotations

from dataclasses import dataclass

# Seconds that a worker's pump waits for whoever writes: timeouts of handlers and renewals must not
# wait with it.
LOCK_WAIT = 1.0


@dataclass(frozen=True)
class Settings:
    """How a worker works."""

    name: str
    queues: tuple[str, ...]
    concurrency: int
    lease: float
    grace: float
    prefetch: int | None
    drain: bool = False
