"""Attempts that take long: their timeouts, whether they are still ours, and those told to stop.

too late, or not ours any more ──► told to stop ──PATIENCE──► abandoned: its slot is replaced
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from ..model import Ending, Outcome
from .attempt import Attempt
from .slots import Slots, kind_of

if TYPE_CHECKING:
    from .endings import Key

log = logging.getLogger("towline.worker")

LOOK = 0.8  # seconds between looks whether long attempts are still ours
SOON = 0.2  # the same when somebody rang
PATIENCE = 2.0  # seconds an attempt has to stop when it was told


class Oversight:
    """Watches what one worker holds. Used by the pump's thread only."""

    def __init__(
        self,
        held: dict[Key, Attempt],
        slots: Callable[[str], Slots],
        end: Callable[[Attempt, Ending | None], None],
    ) -> None:
        self._held = held
        self._slots = slots
        self._end = end
        self.dismissed: dict[Attempt, float] = {}  # told to stop, and until when
        self._looked_at = 0.0
        self.changed = False  # somebody said that something has changed

    def times(self) -> Iterator[float]:
        """When there may be something to do."""
        yield self._look_at()
        yield from self.dismissed.values()
        for attempt in self._held.values():
            if attempt.deadline is not None:
                yield attempt.deadline

    def watch(self, now: float, running: Callable[[], Collection[Key]]) -> Collection[Key]:
        """Do what it is time for; return what is held here and is not this worker's any more."""
        for attempt in list(self._held.values()):
            if attempt.deadline is not None and now >= attempt.deadline:
                self._too_late(attempt, now)
        for attempt, until in list(self.dismissed.items()):
            if now >= until:
                del self.dismissed[attempt]
                self.abandon(attempt)
        if now < self._look_at():
            return ()
        self._looked_at, self.changed = now, False
        ours = running()
        return [key for key in self._held if key not in ours]

    def _look_at(self) -> float:
        """When to look whether what runs here is still ours: seldom, soon after somebody rang."""
        begun = [attempt.begun for attempt in self._held.values() if attempt.begun is not None]
        if not begun:
            return float("inf")
        return self._looked_at + SOON if self.changed else max(min(begun), self._looked_at) + LOOK

    def dismiss(self, attempt: Attempt, why: Outcome) -> None:
        """It is held no longer: tell its handler, and do not wait for it for long."""
        if attempt.withdraw():
            return
        log.info("%s is not this worker's any more: told to stop", attempt)
        self.tell(attempt, why)
        self.dismissed[attempt] = time.monotonic() + PATIENCE

    def tell(self, attempt: Attempt, why: Outcome) -> None:
        attempt.tell(why)
        self._slots(kind_of(attempt)).interrupt(attempt)

    def abandon(self, attempt: Attempt) -> None:
        self._slots(kind_of(attempt)).abandon(attempt)

    def _too_late(self, attempt: Attempt, now: float) -> None:
        """First it is told; when it does not stop, its slot is given to others."""
        if attempt.stopped_for is None:
            log.warning("%s takes longer than its timeout: told to stop", attempt)
            self.tell(attempt, Outcome.TIMEOUT)
            attempt.deadline = now + PATIENCE
            return
        log.warning("%s did not stop: its slot is replaced", attempt)
        self.abandon(attempt)
        if self._held.pop(attempt.key, None) is not None:
            self._end(attempt, attempt.timed_out())
