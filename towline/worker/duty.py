"""A duty: something that a worker does from time to time, and when."""

from __future__ import annotations

from typing import Protocol

NEVER = float("inf")


class Duty(Protocol):
    """Done by the pump's thread, between others: it must be short, and may fail."""

    @property
    def at(self) -> float:
        """When it is due, by the monotonic clock; NEVER: not unless something happens. What `do`
        does when it is due must move this on, or the pump would spin."""
        ...

    def do(self, now: float) -> None:
        """Do it. What it raises is logged, and the tick is tried again after a pause."""
        ...
