"""Waiting for what comes in its own time: in another thread, another process, the database."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LIMIT = 60.0  # seconds after which something that should have happened has not
FIRST, GROWTH, LONGEST = 0.001, 1.5, 0.05  # seconds between looks: many of them read a database


def until(condition: Callable[[], T | None], what: str = "it", limit: float = LIMIT) -> T:
    """Look again and again until the condition holds; return what it gave."""
    end = time.monotonic() + limit
    pause = FIRST
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what} never happened")
        time.sleep(pause)
        pause = min(pause * GROWTH, LONGEST)
    return found
