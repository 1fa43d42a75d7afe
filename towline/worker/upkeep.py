"""Duties of any worker for all: sweep the jobs of dead workers, prune, give pages back; and what
all can see of it: how many attempts it runs.

No leader: every statement is fenced and bounded, and the intervals are jittered.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Collection

from ..events.kinds import JobSwept
from .declare import Declare
from .duty import NEVER
from .identity import is_gone
from .turns import Turns
from .unwritten import begun_by, forget

DEAD_CHECK = 2.0  # seconds between looks for workers of this host that are gone
PRUNE_INTERVAL = 60.0
PRUNE_PAUSE = 0.03  # seconds between batches of pruning: turns go on meanwhile


class SweepDead:
    """Workers of this host whose process is provably gone: they lose their jobs at once. The look
    for them also shows when schedules tick, what was declared, and, to a busy worker, which of its
    queues have limits or lanes."""

    def __init__(self, turns: Turns, declare: Declare) -> None:
        self._turns = turns
        self._declare = declare
        self._host = socket.gethostname()
        self.at = 0.0

    def do(self, now: float) -> None:
        self.at = now + DEAD_CHECK * random.uniform(0.8, 1.2)
        turns = self._turns
        began = time.monotonic()
        known = turns.app.known_tasks, turns.settings.queues, turns.declarations.queues
        glance = turns.run(turns.store.glance(*known))
        workers = glance.workers
        turns.gated = glance.gated
        turns.note_tick(glance.next_tick, glance.now, began)
        self._declare.glanced(glance)
        ids = sorted(worker.id for worker in workers)
        turns.lookout.peers = max(len(ids), 1)
        turns.lookout.rank = ids.index(turns.worker) if turns.worker in ids else 0
        gone = [w.id for w in workers if w.host == self._host and is_gone(w.pid, w.birth)]
        if gone:
            sweep(turns, (), gone)


class SweepExpired:
    """Workers whose lease has ended: they lose their jobs at the second look that finds it so. A
    long stall of the writer must not cost everybody their leases."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._interval = turns.settings.lease / 3
        self._suspects: set[int] = set()
        self._seen_as = 0  # the number that this worker had then
        self.at = 0.0

    def do(self, now: float) -> None:
        turns = self._turns
        if self._seen_as != turns.worker:  # it had lost its own lease: what it saw before is old
            self._seen_as, self._suspects = turns.worker, set()
        expired, strays = turns.run(turns.store.expired())
        # From now on, not from when the tick began: it may have waited for the database in a
        # renewal, and who waited as well has had no time to renew.
        self.at = time.monotonic() + self._interval * random.uniform(1.0, 1.3)
        if expired & self._suspects or strays:
            sweep(turns, expired & self._suspects, ())
        self._suspects = expired


class Prune:
    """Old ended chains, one batch at a time; the next soon while there is something left."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.at = time.monotonic() + random.uniform(0.2, 1) * PRUNE_INTERVAL

    def do(self, now: float) -> None:
        self.at = now + PRUNE_INTERVAL * random.uniform(0.8, 1.2)
        turns = self._turns
        pruned = turns.run(turns.store.prune(turns.app.settings.keep))
        if pruned.done:
            turns.app.runner.engine.after_prune()
        else:
            self.at = time.monotonic() + PRUNE_PAUSE


def sweep(turns: Turns, suspects: Collection[int], gone: Collection[int]) -> None:
    """Take back what these workers held; their ledgers say what of it had begun."""
    begun = {id: known for id in (*suspects, *gone) if (known := begun_by(id)) is not None}
    while taken := turns.run(turns.store.sweep(suspects, gone, begun=begun)):
        turns.lookout.may_have_work = True
        turns.publish(JobSwept(count=taken, worker=turns.settings.name))
        turns.spans.swept(taken)
    for id in begun:
        forget(id)


class TellSize:
    """How many attempts run at a time, when that has changed, for those who look at the worker."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.at = NEVER

    def do(self, now: float) -> None:
        self.at = NEVER  # before: it may change again meanwhile
        turns, settings = self._turns, self._turns.settings
        try:
            turns.run(turns.store.resize(turns.worker, settings.name, settings.concurrency))
        except BaseException:
            self.at = 0.0
            raise
