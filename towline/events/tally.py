"""What metrics count of attempts: bare rows, gathered where they happen and counted together.

An event for each attempt, told one by one, costs more than all that a metric does with it. So who
only adds up asks for rows. They wait apart from the line, which gets an errand for as many as there
are when the thread comes to it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from . import Events
    from .tracing import AttemptSpan

# An attempt that was begun: task, queue, seconds waited.
Begun: TypeAlias = tuple[str, str, float]
# One that is over: task, queue, outcome, whether that was accepted, error type, seconds waited,
# seconds run, and its span, where it has one.
Over: TypeAlias = "tuple[str, str, str, bool | None, str | None, float, float, AttemptSpan | None]"
Counter: TypeAlias = Callable[[Sequence[Any]], object]

log = logging.getLogger("towline.events")

COMPLAIN_EVERY = 60.0  # seconds
MOST_ROWS = 100_000  # that wait; further ones are dropped, and said to be


class Tally:
    """Rows of one kind, and who counts them."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._complained = 0.0
        self.counters: tuple[Counter, ...] = ()  # replaced, never changed
        self.begin()

    def begin(self) -> None:
        """In this process nothing waits."""
        self._rows: deque[Any] = deque()
        self._called = False

    def add(self, rows: Iterable[Any], number: int) -> None:
        """Have them counted, if anybody counts. Never waits, never raises."""
        if not self.counters:
            return
        if len(self._rows) >= MOST_ROWS:
            self._events.drop(number)
            return
        self._rows.extend(rows)
        if not self._called:
            self._called = True
            self._events.call_in_any_case(self._count)

    # ---- in the events' thread

    def _count(self) -> None:
        self._called = False  # whoever adds from now on calls again
        rows, waiting = list[Any](), self._rows
        while waiting:
            rows.append(waiting.popleft())
        for counter in self.counters if rows else ():
            try:
                counter(rows)
            except Exception as error:
                now = time.monotonic()
                if not self._complained or now >= self._complained + COMPLAIN_EVERY:
                    self._complained = now
                    log.error("what counts attempts failed", exc_info=error)
