"""The pump: one thread that moves jobs between the database and the slots. It runs no user code.

It waits for one bell (a wake, an ended attempt, the next due time, the next renewal, stop) and
takes a *turn*: promote what is due, finish what ended, claim what fits, in one transaction. What
cannot be written stays with it and is tried again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from ..errors import TowlineError
from ..model import Ending, Outcome
from ..times import MICRO
from .attempt import Attempt, log_failure
from .oversight import PATIENCE, SOON
from .settings import Settings
from .slots import Slots
from .turns import Turns, begins_of, report_of

if TYPE_CHECKING:
    from ..app import Towline
    from .upkeep import Upkeep

log = logging.getLogger("towline.worker")

MOST = 200  # jobs in one turn
REPORT = 0.3  # seconds between two writings of progress
LONGEST_TROUBLE = 2.0  # seconds between tries while the database is away
DRAIN_SOON = 1.0  # a drain waits for what is due within so many seconds
LAST_WORDS = 2.0  # seconds to write what is left after a stop, at least


class Pump(Turns):
    """Claims, finishes and renews for one worker."""

    def __init__(
        self,
        app: Towline,
        settings: Settings,
        slots: Callable[[str], Slots],
        upkeep: Upkeep,
        register: Callable[[], int],
    ) -> None:
        super().__init__(app, settings, slots, upkeep)
        self._register = register
        self._ended: deque[tuple[Attempt, Ending | None]] = deque()
        self._renew_at = 0.0
        self._report_at = 0.0
        self._stopping = threading.Event()
        self._now = threading.Event()  # stop without waiting for handlers
        self._trouble = 0
        self.unwritten = 0  # endings that could not be written before the end

    # ---- what others call

    def wake(self, queues: Collection[str] | None) -> None:
        """Somebody stored work in these queues, or something changed."""
        if queues is None:
            self._oversight.changed = True
        elif queues and not any(queue in self._settings.queues for queue in queues):
            return
        self._lookout.woken = True
        self.bell.ring()

    def done(self, attempt: Attempt, ending: Ending | None) -> None:
        """A slot reports how an attempt ended."""
        self._ended.append((attempt, ending))
        self.bell.ring()

    def stop(self, now: bool = False) -> None:
        self._stopping.set()
        if now:
            self._now.set()
        self.bell.ring()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    # ---- the thread

    def run(self) -> None:
        """Work until stopped, then hand back what is left."""
        self._patiently(self._enter)
        while not self._stopping.is_set():
            self.bell.wait(self._pause())
            self._patiently(self._tick)
            if self._settings.drain:
                self._patiently(self._stop_when_dry)
        self._leave()

    def _patiently(self, action: Callable[[], None]) -> None:
        """Survive whatever happens: say it, wait a little longer each time, go on."""
        while True:
            try:
                action()
                if self._trouble:
                    log.info("worker %s works again", self._settings.name)
                self._trouble = 0
                return
            except Exception as error:
                self._trouble += 1
                self._say(error)
                pause = min(LONGEST_TROUBLE, 0.05 * 2 ** min(self._trouble, 7))
                self.bell.wait(random.uniform(0.5, 1) * pause)
                if action != self._enter or self._stopping.is_set():
                    return

    def _say(self, error: Exception) -> None:
        known = isinstance(error, TowlineError)
        if self._trouble in (1, 10, 100) or not known:
            text = "worker %s cannot go on just now (%s: %s); it tries again"
            name = type(error).__name__
            log.warning(text, self._settings.name, name, error, exc_info=not known)

    def _enter(self) -> None:
        self.worker = self._register()
        self._renew_at = time.monotonic() + self._settings.lease / 3
        self._ahead.open(self.worker)
        self._upkeep.begin(self.worker)

    def _pause(self) -> float:
        """How long to sleep if nobody rings."""
        now = time.monotonic()
        room = self._room()
        lookout = self._lookout
        if self._ended or (lookout.hungry and room > 0):
            return 0.0
        times = [self._renew_at, self._upkeep.next_at, *self._oversight.times()]
        if room > 0:
            times.append(lookout.look_at)
        timers = (
            lookout.due, self._endings.next_at(), self._ahead.next_at(), self._alone.next_at(),
        )  # fmt: skip
        times += [at for at in timers if at is not None]
        if any(attempt.report is not attempt.reported for attempt in self.held.values()):
            times.append(self._report_at)
        return max(min(times) - now, 0.0)

    def _tick(self) -> None:
        now = time.monotonic()
        self._collect()
        if now >= self._renew_at:
            self._renew()
        self._lose(self._oversight.watch(now, self._running))
        self._hand_back(now)
        self._start_alone(now)
        lookout = self._lookout
        lookout.note_time(now)
        if lookout.wants_look(now) and self._room() > 0:
            self._look(shy=lookout.woken and not self.held)
        write_at = self._endings.next_at()
        if (write_at is not None and now >= write_at) or (lookout.hungry and self._room() > 0):
            self._turn()
        elif lasting := self._ahead.lasting(now):
            self._run(self._runner.store.progress((), begins_of(lasting)))
            self._ahead.recorded(lasting)
        if now >= self._report_at:
            self._report()
        if now >= self._upkeep.next_at:
            if self._upkeep.run():
                lookout.hungry = True

    def _collect(self) -> None:
        """Take what the slots have reported."""
        held, dismissed = self.held, self._oversight.dismissed
        while self._ended:
            attempt, ending = self._ended.popleft()
            if dismissed:
                dismissed.pop(attempt, None)
            if held.pop(attempt.key, None) is None:
                continue  # it was lost or abandoned meanwhile
            if ending is None:
                self.finished += attempt.settled
            elif ending.outcome is not Outcome.COMPLETED:
                log_failure(attempt, ending)
            self._end(attempt, ending)

    # ---- leases

    def _renew(self) -> None:
        settings = self._settings
        mine = {*self.held, *self._endings}
        renewed = self._run(
            self._runner.store.renew(
                self.worker, settings.name, round(settings.lease * MICRO), mine
            )
        )
        if renewed.postponed:
            self._renew_at = time.monotonic() + random.uniform(0.05, 0.2)
            return
        if renewed.registered:
            self._renew_at = time.monotonic() + settings.lease / 3
            self._lose(renewed.lost)
            return
        log.warning("worker %s had lost its lease: what it ran was taken over", settings.name)
        self._lose([*self.held, *self._endings])
        self._enter()

    def _lose(self, keys: Collection[tuple[int, int]]) -> None:
        """Somebody else has these, or they ended from outside: tell their handlers."""
        for key in keys:
            attempt = self.held.get(key)
            if attempt is not None and (attempt.settled or attempt.outside):
                continue  # it has completed its job itself, and is not done yet
            self._endings.discard(key)
            self._reports.pop(key, None)
            if attempt is not None:
                del self.held[key]
                self._end(attempt, None)
                self._oversight.dismiss(attempt, Outcome.CANCELLED)

    # ---- progress

    def _report(self) -> None:
        fresh = [a for a in self.held.values() if a.report is not a.reported]
        if not fresh:
            return
        for attempt in fresh:
            attempt.reported = attempt.report
        self._report_at = time.monotonic() + REPORT
        self._run(self._runner.store.progress([report_of(attempt) for attempt in fresh]))

    # ---- the end

    def _stop_when_dry(self) -> None:
        """Nothing is left to do that could be done now, or in a moment."""
        if self.held or self._ended or self._endings or self._lookout.hungry:
            return
        tasks = sorted(self._app.registry)
        found = self._run(self._runner.store.peek(self._settings.queues, 1, tasks))
        soon = found.next_due is not None and found.next_due <= found.now + DRAIN_SOON * MICRO
        if not found.pending and not found.parked and not soon:
            self._stopping.set()

    def _leave(self) -> None:
        """Let handlers end, hand back what did not begin or does not end, and sign off.

        Whoever stops us may kill us when the grace is over: what is left must be written by then.
        """
        self._stopping.set()
        end = time.monotonic() + self._settings.grace
        for attempt in list(self.held.values()):
            if attempt.withdraw():
                del self.held[attempt.key]
                self._end(attempt, attempt.released())
        grace = self._settings.grace
        patience = max(min(PATIENCE, grace / 2), 0.2)
        self._work_on(grace - patience, until_told=True)
        for attempt in self.held.values():
            self._oversight.tell(attempt, Outcome.RELEASED)
        self._work_on(0.2 if self._now.is_set() else patience - min(0.5, grace / 8))
        for attempt in list(self.held.values()):
            self._oversight.abandon(attempt)
            del self.held[attempt.key]
            self._end(attempt, attempt.released())
        self._collect()
        if self._now.is_set():
            end = 0.0
        end = max(end, time.monotonic() + LAST_WORDS)
        while self._endings and time.monotonic() < end:
            self._patiently(self._write_rest)
        self.unwritten = len(self._endings)
        if self.unwritten:
            log.error(
                "worker %s stops without having recorded how %d attempts ended: they are taken "
                "over when its lease ends", self._settings.name, self.unwritten,
            )  # fmt: skip
        try:
            if self.worker and not self._trouble:
                self._run(self._runner.store.unregister(self.worker))
        except TowlineError as error:
            log.warning("could not sign off (%s); the lease will end by itself", error)
        if not self.unwritten:
            self._ahead.close()

    def _write_rest(self) -> None:
        at = self._endings.next_at()
        if at is not None and at > time.monotonic():
            self.bell.wait(min(at - time.monotonic(), SOON))
        self._tick()

    def _work_on(self, seconds: float, until_told: bool = False) -> None:
        """Go on as long as attempts run, but no longer than that."""
        end = time.monotonic() + seconds
        while self.held and time.monotonic() < end and not (until_told and self._now.is_set()):
            self._patiently(self._tick)
            self.bell.wait(min(self._pause(), max(end - time.monotonic(), 0)))
