"""The lease of all that a worker holds: its own row carries it, whatever that is."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from ..events.kinds import LeaseLost
from ..times import MICRO
from .deadlines import Deadlines
from .turns import Turns


class RenewLease:
    """The lease of all that the worker holds: registered at first, renewed every third of it."""

    def __init__(self, turns: Turns, deadlines: Deadlines, register: Callable[[], int]) -> None:
        self._turns = turns
        self._deadlines = deadlines
        self._register = register
        self.at = 0.0

    def register(self) -> None:
        """Begin under a new number."""
        turns = self._turns
        turns.worker = self._register()
        self.at = time.monotonic() + turns.settings.lease / 3
        turns.ahead.open(turns.worker)

    def do(self, now: float) -> None:
        turns, settings = self._turns, self._turns.settings
        if now >= self._deadlines.at:  # timeouts come although the database may be away
            self._deadlines.end_overdue(now)
        mine = {*turns.held, *turns.endings}
        lease = round(settings.lease * MICRO)
        renewed = turns.run(turns.store.renew(turns.worker, settings.name, lease, mine))
        if renewed.postponed:
            self.at = time.monotonic() + random.uniform(0.05, 0.2)
            return
        if renewed.registered:
            self.at = time.monotonic() + settings.lease / 3
            self._deadlines.drop_lost(renewed.lost)
            return
        turns.publish(LeaseLost(worker=settings.name))
        self._deadlines.drop_lost(mine)
        self.register()
