"""What any worker does now and then for all: sweep, prune, give pages back.

No leader: every statement is fenced and bounded, and the intervals are jittered.
"""

from __future__ import annotations

import logging
import random
import socket
import time
from collections.abc import Collection
from typing import TYPE_CHECKING, TypeVar

from .identity import is_gone
from .ledger import begun_by, forget
from .settings import PATIENCE

if TYPE_CHECKING:
    from ..app import Towline
    from ..operation import Op

T = TypeVar("T")

log = logging.getLogger("towline.worker")

GLANCE = 2.0  # seconds between looks for workers of this host that are gone
PRUNE = 60.0
PRUNE_PAUSE = 0.03  # seconds between batches of pruning: turns go on meanwhile


class Upkeep:
    """Done by the pump between turns; every step is short."""

    def __init__(self, app: Towline, lease: float) -> None:
        self._app = app
        self._runner = app.runner
        self._interval = lease / 3
        self._suspects: set[int] = set()
        self._host = socket.gethostname()
        self._worker = 0
        self.peers = 1  # workers that are there, this one too
        self.rank = 0  # its place among them
        self.next_at = 0.0
        self._sweep_at = 0.0
        self._prune_at = 0.0

    def begin(self, worker: int) -> None:
        """A worker has registered: look at once for what a dead predecessor left behind."""
        self._worker = worker
        now = time.monotonic()
        self.next_at = now
        self._sweep_at = now
        self._prune_at = now + random.uniform(0.2, 1) * PRUNE
        self._suspects = set()

    def run(self) -> bool:
        """Do what is due; say whether jobs may have become pending."""
        now = time.monotonic()
        self.next_at = now + GLANCE * random.uniform(0.8, 1.2)
        freed = self._take_from_the_gone()
        if now >= self._sweep_at:
            self._sweep_at = now + self._interval * random.uniform(1.0, 1.3)
            freed += self._sweep()
        if now >= self._prune_at:
            self._prune_at = now + PRUNE * random.uniform(0.8, 1.2)
            self._prune()
        return freed > 0

    def _take_from_the_gone(self) -> int:
        """Workers of this host whose process is provably gone lose their jobs at once."""
        workers = self._run(self._runner.store.workers())
        ids = sorted(worker.id for worker in workers)
        self.peers = max(len(ids), 1)
        self.rank = ids.index(self._worker) if self._worker in ids else 0
        gone = [w.id for w in workers if w.host == self._host and is_gone(w.pid, w.birth)]
        return self._sweep_all((), gone) if gone else 0

    def _sweep(self) -> int:
        """Take from those that were expired at the last look too: a long stall of the writer must
        not cost everybody their leases."""
        expired = self._run(self._runner.store.expired())
        workers = {worker.id for worker in expired.workers}
        taken = 0
        if workers & self._suspects or expired.strays:
            taken = self._sweep_all(workers & self._suspects, ())
        self._suspects = workers
        return taken

    def _sweep_all(self, suspects: Collection[int], gone: Collection[int]) -> int:
        begun = {id: known for id in (*suspects, *gone) if (known := begun_by(id)) is not None}
        total = 0
        while taken := self._run(self._runner.store.sweep(suspects, gone, begun=begun)):
            total += taken
            log.warning("took back %d jobs of workers that are gone", taken)
        for id in begun:
            forget(id)
        return total

    def _prune(self) -> None:
        """One batch; the next soon, as long as there is something left to prune."""
        if self._run(self._runner.store.prune(self._app.settings.keep)).done:
            self._runner.engine.after_prune()
            return
        self._prune_at = time.monotonic()
        self.next_at = min(self.next_at, self._prune_at + PRUNE_PAUSE)

    def _run(self, op: Op[T]) -> T:
        return self._runner.run(op, patience=PATIENCE)
