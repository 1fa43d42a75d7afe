"""The duty about declarations: write what the code says of schedules and limits."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from .duty import NEVER
from .turns import Turns

if TYPE_CHECKING:
    from ..store.schedule import Glance


class Declare:
    """What the code of this worker declares: written when it registers, and again if what is stored
    is what no living worker declares: an old one was the last to start, and is gone.

    Limits are written before the first claim. Otherwise a look comes first: who declares nothing,
    and has declared nothing, pays for nothing."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._first = True
        self.at = NEVER

    def begin(self) -> None:
        """The worker has registered for the first time."""
        declared = self._turns.declarations
        # A worker that ends when there is nothing to do may not be there for the first look.
        if declared.limits or (declared.schedules and self._turns.settings.drain):
            self.at = 0.0

    def glanced(self, glance: Glance) -> None:
        """A look has shown who is there, and in what schedules and limits were declared."""
        if self._wants(glance):
            self.at = 0.0

    def do(self, now: float) -> None:
        turns = self._turns
        digest, schedules, limits, queues = turns.declarations
        tasks = sorted(turns.app.registry)
        ticking = turns.run(turns.store.declare(schedules, tasks, digest))
        limited = turns.run(turns.store.declare_limits(limits, queues, digest))
        postponed = ticking.postponed or limited.postponed
        self.at = time.monotonic() + random.uniform(0.05, 0.2) if postponed else NEVER
        if limited.changed:
            turns.lookout.woken = True  # which of its queues are limited has changed
        if self._first:
            names = [f"schedule {name}" for name in ticking.taken]
            names += [f"the limit of {_named(*place)}" for place in limited.taken]
            for name in names:
                text = f"leaves {name} as it was set at run time, not as it is declared"
                turns.announce.changed("troubled", text)
        self._first = self._first and postponed
        if schedules:
            began = time.monotonic()
            seen = turns.run(turns.store.glance(tasks))
            turns.note_tick(seen.next_tick, seen.now, began)

    def _wants(self, glance: Glance) -> bool:
        mine, schedules, limits, _ = self._turns.declarations
        declared = bool(schedules or limits)
        stored = set(glance.declared_in)
        others = stored - {mine}
        if self._first:
            self._first = bool(declared or others)
            return self._first
        if others:
            return not others <= {worker.declares for worker in glance.workers}
        if not declared or mine in stored:
            return False
        began = {worker.id: worker.started_at for worker in glance.workers}
        own = began.get(self._turns.worker, 0)
        return not any(w.started_at > own and w.declares != mine for w in glance.workers)


def _named(queue: str, lane: str) -> str:
    return f"lane {lane} of queue {queue}" if lane else f"queue {queue}"
