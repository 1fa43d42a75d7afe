"""The duty about schedules: fire the ticks that have come.

Any worker does it, for tasks that it knows, whether it has a free slot or not. There is no leader:
who gets a schedule's row fires it. A worker learns from its looks when the next tick is, and sleeps
until then; one whose tasks have no schedules asks for nothing.
"""

from __future__ import annotations

import random
import time

from .duty import NEVER
from .turns import Turns

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds until what somebody holds is tried again
COURTESY = 0.02  # seconds that each worker leaves to the one before it
LONGEST_COURTESY = 0.2


class FireTicks:
    """Ticks of this worker's tasks, when they have come."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._pause = SHORTEST_PAUSE

    @property
    def at(self) -> float:
        turns = self._turns
        if turns.next_tick == NEVER or turns.stopping:
            return NEVER
        return turns.next_tick + min(turns.lookout.rank * COURTESY, LONGEST_COURTESY)

    def do(self, now: float) -> None:
        turns = self._turns
        tasks = sorted(turns.app.registry)
        if turns.lookout.rank:  # most likely the one before has done it: look, without the writer
            began = time.monotonic()
            seen = turns.run(turns.store.glance(tasks))
            turns.note_tick(seen.next_tick, seen.now, began)
            if seen.next_tick is None or seen.next_tick > seen.now:
                return
        began = time.monotonic()
        fired = turns.run(turns.store.fire(tasks))
        if fired.jobs:
            turns.lookout.may_have_work = True
        if fired.postponed:
            turns.next_tick = time.monotonic() + random.uniform(0.5, 2) * self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            return
        self._pause = SHORTEST_PAUSE
        turns.note_tick(fired.next_tick, fired.now, began)
