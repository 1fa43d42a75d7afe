"""What the database knows of all workers: one look at it for all who ask.

A look is kept for a few seconds and may take one: one that takes longer goes on in its thread, and
is there for who asks next. When it fails nothing old is shown.

Ended jobs come straight from the roll-ups, so they are counted once, killed workers or not, and
never fall. What is older than a quarter of an hour is added up once in ten minutes: a minute that
is over changes only when somebody's transaction took as long.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ..errors import TowlineError
from ..model import State
from ..naming import EVERY
from ..operation import Op, Steps
from ..store.columns import BUCKETS
from ..store.ground import MINUTE
from ..store.listing import JobFilter
from ..store.stats import RollupRecord, StatsFilter
from ..times import MICRO
from .labels import OTHER, Labels

if TYPE_CHECKING:
    from ..app import Towline
    from ..store import Store

log = logging.getLogger("towline.telemetry")

KEEP = 5.0  # seconds for which a look is shown
PATIENCE = 1.0  # seconds that is waited for it
OLD = 15 * 60 * MICRO  # of roll-ups that are added up from time to time only …
ADD_UP_EVERY = 600.0  # … in seconds
LOOKED_AT = 50  # of the pending jobs of a queue, those that were stored first
OPEN = tuple(str(state) for state in State if state.open)


class Sums(Struct):
    """Ended jobs of a time, by labels."""

    ended: Counter[tuple[str, ...]] = field(default_factory=Counter[tuple[str, ...]])
    # How many ran how long, and their sum.
    run: dict[tuple[str, str], list[int]] = field(default_factory=dict[tuple[str, str], list[int]])

    def add(self, records: list[RollupRecord], labels: Labels) -> None:
        for record in records:
            place = labels.queue(record.queue), labels.task(record.task)
            self.ended[(*place, str(record.outcome))] += record.ended
            row = self.run.setdefault(place, [0] * (len(BUCKETS) + 2))
            for number, more in enumerate((*record.histogram, record.duration)):
                row[number] += more

    def copy(self) -> Sums:
        return Sums(self.ended.copy(), {place: row.copy() for place, row in self.run.items()})


class Look(Struct):
    """What was there."""

    workers: int = 0
    jobs: Counter[tuple[str, ...]] = field(default_factory=Counter[tuple[str, ...]])
    ages: dict[str, float] = field(default_factory=dict[str, float])
    paused: dict[str, float] = field(default_factory=dict[str, float])
    sums: Sums = field(default_factory=Sums)


class Cluster:
    """The looks at one app's database."""

    def __init__(self, app: Towline) -> None:
        self._app = app
        self._labels = Labels()
        self._begin()
        self._old = Sums()
        self._until = 0  # which minutes are in there, as a time
        self._added_up_at: float | None = None

    def _begin(self) -> None:
        """In this process nobody has looked yet."""
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._look: Look | None = None
        self._looked_at = 0.0
        self._looking: threading.Event | None = None  # set when a look that goes on is over

    def look(self) -> Look | None:
        """The look of the moment; None when the database does not answer in time."""
        if os.getpid() != self._pid:  # a fork left the thread behind that was looking
            self._begin()
        with self._mutex:
            if self._is_fresh():
                return self._look
            if self._looking is None:
                self._looking = threading.Event()
                threading.Thread(target=self._take, name="towline-metrics", daemon=True).start()
            over = self._looking
        over.wait(PATIENCE)
        with self._mutex:
            return self._look if self._is_fresh() else None

    def _is_fresh(self) -> bool:
        return self._look is not None and time.monotonic() < self._looked_at + KEEP

    def _take(self) -> None:
        look: Look | None = None
        try:
            look = self._app.runner.run(Op("metrics", self._steps, reads=True), patience=PATIENCE)
        except TowlineError as error:
            log.info("no metrics of the database: %s", type(error).__name__)
        finally:
            with self._mutex:
                self._look, self._looked_at = look, time.monotonic()
                over, self._looking = self._looking, None
            if over is not None:
                over.set()

    def _steps(self) -> Steps[Look]:
        """All of it in one transaction."""
        store, labels, look = self._app.runner.store, self._labels, Look()
        now = yield from store.now()
        workers = yield from store.workers()
        look.workers = sum(worker.lease_until > now for worker in workers)
        for queue, states in (yield from store.counts()).items():
            name = labels.queue(queue)
            for state in OPEN:
                look.jobs[name, state] += 0  # also when there are none: a chart falls to it
            for state, (number, _) in states.items():
                look.jobs[name, str(state)] += number
            if name != OTHER:
                look.ages[name] = 0.0
                if states.get(State.PENDING, (0, False))[0]:
                    look.ages[name] = yield from self._age(store, queue, now)
        paused = {each.name for each in (yield from store.paused())}
        names = look.ages.keys() | paused if EVERY in paused else paused
        look.paused = dict.fromkeys(map(labels.queue, names), 1.0)
        look.sums = yield from self._sums(store, now)
        return look

    def _age(self, store: Store, queue: str, now: int) -> Steps[float]:
        """For how long the first job waits that could run: of the first that were stored, some may
        have been due later, or have come back."""
        filter = JobFilter(queue=queue, state=State.PENDING)
        found = yield from store.jobs(filter, LOOKED_AT, None, False)
        since = [max(record.created_at, record.run_at or 0) for record in found.records]
        return max(now - min(since, default=now), 0) / MICRO

    def _sums(self, store: Store, now: int) -> Steps[Sums]:
        last = self._added_up_at
        if last is None or time.monotonic() >= last + ADD_UP_EVERY:
            old, until = Sums(), (now - OLD) // MINUTE * MINUTE
            old.add((yield from store.stats(StatsFilter(until=until), None)), self._labels)
            self._old, self._until, self._added_up_at = old, until, time.monotonic()
        sums = self._old.copy()
        sums.add((yield from store.stats(StatsFilter(since=self._until), None)), self._labels)
        return sums
