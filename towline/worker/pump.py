"""The pump: one thread that moves jobs between the database and the slots. It runs no user code.

It waits for one bell (a wake, an ended attempt, stop) or until a duty is due, then does all that
are. What cannot be written stays with it and is tried again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from ..errors import TowlineError
from ..model import Outcome
from ..naming import EVERY, serves
from ..records import Ending
from ..times import MICRO
from .attempt import Attempt
from .deadlines import STOP_GRACE
from .duties import Duties
from .ending import released
from .settings import Settings
from .slots import Slots
from .turns import Turns

if TYPE_CHECKING:
    from ..app import Towline

LONGEST_RETRY_PAUSE = 2.0  # seconds between tries while the database is away
DRAIN_WAITS_FOR = 1.0  # seconds within which a scheduled job is due that a drain waits for
LAST_WRITES = 2.0  # seconds to write what is left after a stop, at least
LAST_WRITES_PAUSE = 0.2  # seconds between two tries of it, at most


class Pump:
    """Claims, finishes and renews for one worker."""

    def __init__(
        self,
        app: Towline,
        settings: Settings,
        slots: Mapping[str, Slots],
        register: Callable[[], int],
    ) -> None:
        self._app = app
        self._settings = settings
        self.turns = Turns(app, settings, slots)
        self._duties = Duties(self.turns, register)
        self._bell = self.turns.bell
        self._at_once = False  # stop without waiting for handlers
        self._trouble = 0  # failures in a row
        self.unwritten = 0  # endings that could not be written before the end
        self.next_due_in: float | None = None  # seconds, of what a drain leaves for later
        self.came_round = time.monotonic()  # when it had last done what it was to do
        self.on_round: Callable[[], None] | None = None  # called each time; never raises

    # ---- what others call, from any thread

    def wake(self, queues: Collection[str] | None) -> bool:
        """There may be work in these queues; None: something else has changed. False: the next turn
        looks for work in any case."""
        if queues is None:
            self._duties.deadlines.changed = self.turns.deadline_set = True
        elif queues and not any(map(self._serves, queues)):
            return True
        lookout = self.turns.lookout
        busy = lookout.may_have_work
        lookout.woken = True
        self._bell.set()
        return not busy

    def _serves(self, queue: str) -> bool:
        return queue == EVERY or serves(self._settings.queues, queue)

    def done(self, attempt: Attempt, ending: Ending | None) -> None:
        """A slot reports how an attempt ended, or each of a chunk."""
        if attempt.task.chunk is None:
            self._duties.collect.add(attempt, ending)
        else:
            for item, its_own in attempt.reports(ending):
                self._duties.collect.add(item, its_own)
        if not self._bell.is_set():
            self._bell.set()

    def resize(self, settings: Settings) -> None:
        """There are more slots now, or fewer."""
        self._settings = self.turns.settings = settings
        self.turns.lookout.may_have_work = True
        self._duties.resized.at = 0.0
        self._bell.set()

    def stop(self, now: bool = False) -> None:
        self.turns.stopping = True
        self._at_once = self._at_once or now
        self._bell.set()

    @property
    def is_stopping(self) -> bool:
        return self.turns.stopping

    # ---- the thread

    def run(self) -> None:
        """Work until stopped, then hand back what is left."""
        while not self._retrying(self._duties.register) and not self.is_stopping:
            pass
        while not self.is_stopping:
            self._sleep(self._pause())
            self._retrying(self._tick)
            if self._settings.drain:
                self._retrying(self._stop_when_dry)
            if self._settings.max_jobs is not None and self.turns.has_run_all:
                self.turns.stopping = True
        self._leave()

    def _sleep(self, seconds: float) -> None:
        """Until the bell rings, at most so long. What it rings for has been done before."""
        self._bell.wait(seconds)
        self._bell.clear()

    def _pause(self) -> float:
        """Seconds to sleep if no bell rings."""
        return max(self._duties.at - time.monotonic(), 0.0)

    def _tick(self) -> None:
        self._duties.do(time.monotonic())

    def _retrying(self, action: Callable[[], None]) -> bool:
        """Survive whatever happens: say it and wait, longer each time; whether all went well."""
        self._come_round()
        try:
            action()
        except Exception as error:
            self._trouble += 1
            self._announce_trouble(error)
            # When the database is back, the lease must be renewed before another worker has
            # looked twice, which takes a third of a lease: upkeep.SweepExpired.
            longest = min(LONGEST_RETRY_PAUSE, self._settings.lease / 6)
            pause = min(longest, 0.05 * 2 ** min(self._trouble, 7))
            self._sleep(random.uniform(0.5, 1) * pause)
            return False
        if self._trouble:
            self.turns.announce.changed("recovered", "works again")
        self._trouble = 0
        return True

    def _come_round(self) -> None:
        self.came_round = time.monotonic()
        if self.on_round is not None:
            self.on_round()

    def _announce_trouble(self, error: Exception) -> None:
        known = isinstance(error, TowlineError)
        if self._trouble in (1, 10, 100) or not known:
            text = f"cannot go on just now ({type(error).__name__}: {error}); it tries again"
            self.turns.announce.changed("troubled", text, error, traced=not known)

    # ---- the end

    def _stop_when_dry(self) -> None:
        """Stop when nothing is left to do that could be done now, or in a moment."""
        turns = self.turns
        if turns.held or self._duties.collect or turns.endings or turns.lookout.may_have_work:
            return
        began = time.monotonic()
        found = turns.run(turns.store.peek(self._settings.queues, 1, self._app.known_tasks))
        if found.next_tick is not None and found.next_tick <= found.now:
            turns.note_tick(found.next_tick, found.now, began)
            return
        soon = found.next_due is not None and found.next_due <= found.now + DRAIN_WAITS_FOR * MICRO
        if not found.pending and not found.parked and not soon and not found.waits:
            turns.stopping = True
            if found.next_due is not None:
                self.next_due_in = (found.next_due - found.now) / MICRO

    def _leave(self) -> None:
        """Let handlers end, hand back what did not begin or does not end, and sign off.

        A supervisor may kill us when the grace is over: what is left must be written by then.
        """
        self._come_round()
        turns, grace = self.turns, self._settings.grace
        end = time.monotonic() + grace
        for attempt in list(turns.held.values()):
            if attempt.withdraw():
                turns.end(attempt, released(attempt))
        patience = max(min(STOP_GRACE, grace / 2), 0.2)
        self._work_on(grace - patience, until_hurried=True)
        for attempt in turns.held.values():
            turns.ask_to_stop(attempt, Outcome.RELEASED)
        self._work_on(0.2 if self._at_once else patience - min(0.5, grace / 8))
        for attempt in list(turns.held.values()):
            turns.abandon(attempt)
            turns.end(attempt, released(attempt))
        self._duties.collect.do(time.monotonic())
        self._write_rest(max(0.0 if self._at_once else end, time.monotonic() + LAST_WRITES))
        try:
            if turns.worker and not self._trouble:
                turns.run(turns.store.unregister(turns.worker))
        except TowlineError as error:
            text = f"could not sign off ({error}); its lease will end by itself"
            turns.announce.changed("troubled", text, error, traced=False)
        if not self.unwritten:
            turns.ahead.close()

    def _work_on(self, seconds: float, until_hurried: bool = False) -> None:
        """Go on as long as attempts run, but no longer than that."""
        end = time.monotonic() + seconds
        while self.turns.held and time.monotonic() < end:
            if until_hurried and self._at_once:
                return
            self._retrying(self._tick)
            self._sleep(min(self._pause(), max(end - time.monotonic(), 0)))

    def _write_rest(self, end: float) -> None:
        endings, hurried = self.turns.endings, self._at_once
        while endings and time.monotonic() < end:
            if self._at_once and not hurried:
                hurried, end = True, min(end, time.monotonic() + LAST_WRITES)
            pause = endings.at - time.monotonic()
            if pause > 0:
                self._sleep(min(pause, LAST_WRITES_PAUSE))
            self._retrying(self._tick)
        self.unwritten = len(endings)
        if self.unwritten:
            text = f"stops without having recorded how {self.unwritten} attempts ended: they are "
            self.turns.announce.changed("broken", text + "taken over when its lease ends")
