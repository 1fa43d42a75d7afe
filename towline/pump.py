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
from typing import TYPE_CHECKING, Any

from .attempt import Attempt, log_failure
from .bell import Bell
from .errors import StoreError, TowlineError
from .model import Claimed, Ending, Outcome
from .pace import Pace, Settings
from .retry import MICRO
from .slots import Slots, kind_of
from .store.work import Turn
from .upkeep import briefly

if TYPE_CHECKING:
    from .app import Towline
    from .operation import Op
    from .upkeep import Upkeep

log = logging.getLogger("towline.worker")

MOST = 200  # jobs in one turn
LOOK = 0.8  # seconds between looks whether long attempts are still ours
SOON = 0.2  # the same when somebody rang
REPORT = 0.3  # seconds between two writings of progress
PATIENCE = 2.0  # seconds an attempt has to stop when it was told
LONGEST_PAUSE = 5.0  # seconds between looks for work when nobody rings
LATER = 0.02  # seconds until endings are tried again that touch what somebody holds


class Pump:
    """Claims, finishes and renews for one worker."""

    def __init__(
        self,
        app: Towline,
        settings: Settings,
        slots: Callable[[str], Slots],
        upkeep: Upkeep,
        register: Callable[[], int],
    ) -> None:
        self._app = app
        self._settings = settings
        self._slots = slots
        self._upkeep = upkeep
        self._register = register
        self.worker = 0
        self.bell = Bell()
        self.held: dict[tuple[int, int], Attempt] = {}
        self._ended: deque[tuple[Attempt, Ending | None]] = deque()
        self._endings: dict[tuple[int, int], Ending] = {}  # to be written
        self._hungry = True
        self._woken = False
        self._changed = False
        self._due: float | None = None  # when a scheduled job comes, by the monotonic clock
        self._renew_at = 0.0
        self._looked_at = 0.0
        self._report_at = 0.0
        self._try_at = 0.0
        self._stopping = threading.Event()
        self._now = threading.Event()  # stop without waiting for handlers
        self._trouble = 0
        self._dismissed: dict[Attempt, float] = {}  # told to stop, and until when
        self._peek_at = 0.0
        self._pace = Pace()
        self.finished = 0
        self.on_ends: Callable[[], None] = lambda: None  # tells those who wait for chains

    # ---- what others call

    def wake(self, queues: Collection[str] | None) -> None:
        """Somebody stored work in these queues, or something changed."""
        if queues is None:
            self._changed = True
        elif queues and not any(queue in self._settings.queues for queue in queues):
            return
        self._woken = True
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
                self.bell.wait(random.uniform(0.5, 1) * min(5.0, 0.05 * 2 ** min(self._trouble, 7)))
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
        self._upkeep.begin(self.worker)

    def _pause(self) -> float:
        """How long to sleep if nobody rings."""
        now = time.monotonic()
        room = self._room()
        if self._ended or (self._hungry and room > 0):
            return 0.0
        times = [self._renew_at, self._upkeep.next_at, self._look_at()]
        if room > 0:
            times.append(self._peek_at)
        times += self._dismissed.values()
        if self._due is not None:
            times.append(self._due)
        if self._endings:
            times.append(self._try_at)
        for attempt in self.held.values():
            if attempt.report is not attempt.reported:
                times.append(self._report_at)
            if attempt.deadline is not None:
                times.append(attempt.deadline)
        return max(min(times) - now, 0.0)

    def _look_at(self) -> float:
        """When to look whether what runs here is still ours: seldom, soon after somebody rang."""
        begun = [attempt.begun for attempt in self.held.values() if attempt.begun is not None]
        if not begun:
            return float("inf")
        return self._looked_at + SOON if self._changed else max(min(begun), self._looked_at) + LOOK

    def _tick(self) -> None:
        now = time.monotonic()
        self._collect()
        if now >= self._renew_at:
            self._renew()
        self._watch(now)
        if self._due is not None and now >= self._due:
            self._due, self._hungry = None, True
        if (self._woken or now >= self._peek_at) and self._room() > 0:
            self._peek(shy=self._woken and not self.held)
        if (self._endings and now >= self._try_at) or (self._hungry and self._room() > 0):
            self._turn()
        if now >= self._report_at:
            self._report()
        if now >= self._upkeep.next_at:
            if self._upkeep.run():
                self._hungry = True

    def _collect(self) -> None:
        """Take what the slots have reported."""
        while self._ended:
            attempt, ending = self._ended.popleft()
            self._dismissed.pop(attempt, None)
            if self.held.pop(attempt.key, None) is None:
                continue  # it was lost or abandoned meanwhile
            if ending is not None:
                self._endings[attempt.key] = ending
                self._try_at = 0.0
                log_failure(attempt, ending)

    # ---- turns

    def _room(self) -> int:
        """How many more attempts may be claimed; none ahead for processes, which take longer."""
        if self._stopping.is_set():
            return 0
        ahead = self._settings.prefetch
        if ahead is None:
            ahead = self._pace.ahead(self._settings.concurrency)
            if ahead and any(attempt.task.run_in == "process" for attempt in self.held.values()):
                ahead = 0
        return min(self._settings.concurrency + ahead, 2 * MOST) - len(self.held)

    def _peek(self, shy: bool = False) -> None:
        """Look without taking the writer, which others may need.

        Of many idle workers that were woken together only the first few take a turn, as many as
        there are jobs; the others look again a moment later, in case one of those is gone.
        """
        now = time.monotonic()
        self._woken = False
        self._peek_at = now + LONGEST_PAUSE
        peers, rank = self._upkeep.peers, self._upkeep.rank
        ahead = self._run(self._app.store.peek(self._settings.queues, peers))
        self._note_due(ahead.next_due, ahead.now)
        if shy and 0 < ahead.pending <= rank:
            self._peek_at = now + self._pace.courtesy * (rank // ahead.pending)
        elif ahead.pending:
            self._hungry = True

    def _note_due(self, next_due: int | None, now: int) -> None:
        self._due = None if next_due is None else time.monotonic() + (next_due - now) / MICRO

    def _turn(self) -> None:
        room = min(max(self._room(), 0), MOST)
        sent = list(self._endings.items())[:MOST]
        self._pace.begin_turn(len(sent))
        settings = self._settings
        try:
            turn = self._run(
                self._app.store.turn(
                    self.worker,
                    settings.name,
                    settings.queues,
                    room,
                    [e for _, e in sent],
                    self._upkeep.to_unpark,
                )
            )
        except StoreError:
            raise
        except TowlineError:
            self._finish_singly(sent)  # one of them cannot be written as it is
            return
        self._pace.end_turn()
        self._settle(sent, turn.finished.postponed)
        if turn.finished.accepted:
            self.on_ends()
        if turn.unparked == 0:
            self._upkeep.to_unpark = ()
        if room:  # else there is nothing to say about what waits
            self._peek_at = time.monotonic() + LONGEST_PAUSE
            self._hungry = len(turn.claimed) >= room
            if not self._hungry:
                self._note_due(turn.next_due, turn.now)
        self._start(turn)

    def _settle(
        self, sent: Collection[tuple[tuple[int, int], Ending]], postponed: Collection[int]
    ) -> None:
        later = set(postponed)
        for key, _ in sent:
            if key[0] in later:
                self._try_at = time.monotonic() + random.uniform(LATER / 2, LATER)
            else:
                self._endings.pop(key, None)
                self.finished += 1

    def _finish_singly(self, sent: Collection[tuple[tuple[int, int], Ending]]) -> None:
        """A continuation that cannot be stored is a failure of its job, and of no other."""
        settings = self._settings
        for key, ending in sent:
            try:
                done = self._run(self._app.store.finish([ending], settings.name, self.worker))
            except StoreError:
                raise
            except TowlineError as error:
                self._endings[key] = ending.refused(error)
            else:
                self._settle([(key, ending)], done.postponed)

    def _start(self, turn: Turn) -> None:
        unknown: list[Claimed] = []
        for held in turn.claimed:
            task = self._app.registry.get(held.task)
            if task is None:
                unknown.append(held)
                continue
            blockers = turn.blockers.get(held.job_id, ())
            attempt = Attempt(self._app, task, held, blockers, self.bell.ring)
            attempt.worker = self._settings.name, self.worker
            self.held[attempt.key] = attempt
            try:
                self._slots(kind_of(attempt)).start(attempt)
            except Exception:
                log.exception("%s could not be started: it is handed back", attempt)
                del self.held[attempt.key]
                self._endings[attempt.key] = attempt.released()
                self._try_at = time.monotonic() + LONGEST_PAUSE
        if unknown:
            names = ", ".join(sorted({held.task for held in unknown}))
            log.warning("no task named %s here: set aside until a worker knows it", names)
            self._run(self._app.store.park(unknown))

    # ---- leases

    def _renew(self) -> None:
        settings = self._settings
        mine = {*self.held, *self._endings}
        renewed = self._run(
            self._app.store.renew(self.worker, settings.name, round(settings.lease * MICRO), mine)
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
            self._endings.pop(key, None)
            if attempt is not None:
                del self.held[key]
                self._dismiss(attempt, Outcome.CANCELLED)

    def _dismiss(self, attempt: Attempt, why: Outcome) -> None:
        if attempt.withdraw():
            return
        log.info("%s is not this worker's any more: told to stop", attempt)
        self._tell(attempt, why)
        self._dismissed[attempt] = time.monotonic() + PATIENCE

    def _tell(self, attempt: Attempt, why: Outcome) -> None:
        attempt.tell(why)
        self._slots(kind_of(attempt)).interrupt(attempt)

    # ---- attempts that take long

    def _watch(self, now: float) -> None:
        for attempt in list(self.held.values()):
            if attempt.deadline is not None and now >= attempt.deadline:
                self._too_late(attempt, now)
        for attempt, until in list(self._dismissed.items()):
            if now >= until:
                del self._dismissed[attempt]
                self._slots(kind_of(attempt)).abandon(attempt)
        if now >= self._look_at():
            self._looked_at, self._changed = now, False
            running = self._run(self._app.store.running(self.worker))
            self._lose([key for key in self.held if key not in running])

    def _too_late(self, attempt: Attempt, now: float) -> None:
        """First it is told; when it does not stop, its slot is given to others."""
        if attempt.stopped_for is None:
            log.warning("%s takes longer than its timeout: told to stop", attempt)
            self._tell(attempt, Outcome.TIMEOUT)
            attempt.deadline = now + PATIENCE
            return
        log.warning("%s did not stop: its slot is replaced", attempt)
        self._slots(kind_of(attempt)).abandon(attempt)
        self.held.pop(attempt.key, None)
        self._endings[attempt.key] = attempt.timed_out()
        self._try_at = 0.0

    def _report(self) -> None:
        fresh = [a for a in self.held.values() if a.report is not a.reported]
        if not fresh:
            return
        reports = []
        for attempt in fresh:
            attempt.reported = attempt.report
            fraction, text = attempt.report or (None, None)
            reports.append((attempt.held, fraction, text))
        self._report_at = time.monotonic() + REPORT
        self._run(self._app.store.progress(reports))

    # ---- the end

    def _stop_when_dry(self) -> None:
        """Nothing is left to do that could be done now."""
        if self.held or self._ended or self._endings or self._hungry:
            return
        if not self._run(self._app.store.peek(self._settings.queues)).pending:
            self._stopping.set()

    def _leave(self) -> None:
        """Let handlers end, hand back what did not begin or does not end, and sign off."""
        self._stopping.set()
        for attempt in list(self.held.values()):
            if attempt.withdraw():
                del self.held[attempt.key]
                self._endings[attempt.key] = attempt.released()
        grace = self._settings.grace
        # Whoever stops us may kill us when the grace is over: what is left must be written by then.
        patience = max(min(PATIENCE, grace / 2), 0.2)
        self._work_on(grace - patience, until_told=True)
        for attempt in self.held.values():
            self._tell(attempt, Outcome.RELEASED)
        self._work_on(0.2 if self._now.is_set() else patience - min(0.5, grace / 8))
        for attempt in self.held.values():
            self._slots(kind_of(attempt)).abandon(attempt)
            self._endings[attempt.key] = attempt.released()
        self.held.clear()
        self._collect()
        deadline = time.monotonic() + self._settings.lease
        while self._endings and time.monotonic() < deadline:
            self._patiently(self._tick)
            if self._endings:
                self.bell.wait(LATER)
        try:
            if self.worker:
                self._run(self._app.store.unregister(self.worker))
        except TowlineError as error:
            log.warning("could not sign off (%s); the lease will end by itself", error)

    def _work_on(self, seconds: float, until_told: bool = False) -> None:
        """Go on as long as attempts run, but no longer than that."""
        end = time.monotonic() + seconds
        while self.held and time.monotonic() < end and not (until_told and self._now.is_set()):
            self._patiently(self._tick)
            self.bell.wait(min(self._pause(), max(end - time.monotonic(), 0)))

    def _run(self, op: Op[Any]) -> Any:
        return briefly(self._app, op)
