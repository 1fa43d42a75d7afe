"""When a worker looks for work: what it was told, what is due, and what its last look has shown."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..store.turn import Peeked, Turn
from ..times import MICRO
from .pace import Pace
from .upkeep import Upkeep

LONGEST_PAUSE = 5.0  # seconds between looks for work when nobody rings
SHORT_PAUSE = 0.02  # seconds until the next look when less was claimed than seemed to be there
LONGEST_OVERDUE = 1.0  # seconds between tries to get a due job that somebody holds
BARREN = 3  # turns in a row that took nothing though jobs were there


class Lookout:
    """Says whether a turn is worth taking, and when to look otherwise."""

    def __init__(self, pace: Pace, upkeep: Upkeep, queues: int) -> None:
        self._pace = pace
        self._upkeep = upkeep
        self._queues = queues
        self.hungry = True  # a turn may find work
        self.woken = False
        self.due: float | None = None  # when a scheduled job comes, by the monotonic clock
        self.look_at = 0.0
        self.unpark: Sequence[str] = ()  # tasks whose parked jobs the next turns bring back
        self._barren = 0
        self._pause = SHORT_PAUSE
        self._overdue = SHORT_PAUSE

    def note_time(self, now: float) -> None:
        if self.due is not None and now >= self.due:
            self.due, self.hungry = None, True

    def wants_look(self, now: float) -> bool:
        return self.woken or now >= self.look_at

    @property
    def barren(self) -> bool:
        """Whether jobs are there that no turn can take: they may have lost their rows."""
        return self._barren >= BARREN

    def looked(self, found: Peeked, tasks: Sequence[str], *, shy: bool) -> None:
        """A look has shown this. Of many idle workers that were woken together only the first few
        take a turn, as many as there are jobs; the others look again a moment later, in case one of
        those is gone."""
        now = time.monotonic()
        self.look_at = now + LONGEST_PAUSE
        if found.parked:
            self.unpark = tasks
        rank = self._upkeep.rank
        overdue = self._note_due(found.next_due, found.now)
        if shy and 0 < found.pending <= rank and not found.parked:
            self.look_at = now + self._pace.courtesy * (rank // found.pending)
        elif found.pending or found.parked or (overdue and self._overdue == SHORT_PAUSE):
            self.hungry = True
        else:
            self._pause = SHORT_PAUSE
        if not found.pending:
            self._barren = 0

    def took(self, turn: Turn, room: int) -> None:
        """A turn had room for so many: was that all there is, and when to look again?"""
        if turn.unparked == 0:
            self.unpark = ()
        self.hungry = len(turn.claimed) >= room
        self._barren = 0 if turn.claimed else self._barren + 1
        if turn.claimed:
            self._pause = SHORT_PAUSE
        if turn.promoted:
            self._overdue = SHORT_PAUSE
        pause = LONGEST_PAUSE
        if self._queues > 1 and not self.hungry:
            # Others may have held for a moment what they did not take.
            pause, self._pause = self._pause, min(4 * self._pause, LONGEST_PAUSE)
        self.look_at = time.monotonic() + pause
        if not self.hungry and self._note_due(turn.next_due, turn.now):
            self._overdue = min(2 * self._overdue, LONGEST_OVERDUE)

    def _note_due(self, next_due: int | None, now: int) -> bool:
        """When the next scheduled job comes. One that is overdue after a turn is held by somebody:
        it is tried less and less often."""
        if next_due is None:
            self.due = None
            return False
        if next_due > now:
            self.due = time.monotonic() + (next_due - now) / MICRO
            self._overdue = SHORT_PAUSE
            return False
        self.due = time.monotonic() + self._overdue
        return True
