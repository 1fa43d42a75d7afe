"""Handlers with `run_in="process"`: processes of their own, which can be killed.

Each slot is a thread that keeps one process, kept warm for the next attempt:

    starting ─► free ⇄ running ─► gone
        └─────────┴───────────────► gone

A process is gone when it was killed, died, has run as many attempts as it may, keeps too much of
its memory limit, or the slots are closed. Another takes its place when there is an attempt for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...model import Outcome
from ...records import Ending
from ..attempt import Attempt
from ..ending import of_error
from ..settings import Settings
from . import Done, hand_back
from .pace import MOMENT, Pace
from .process_slot import ProcessSlot

if TYPE_CHECKING:
    from ...app import Towline

log = logging.getLogger("towline.worker")

CLOSE_TIMEOUT = 10.0  # seconds in which all processes end, those that were killed too
MOST_BYTES_BEHIND = 32 * 1024  # of arguments behind the first: sending waits for no handler


class ProcessSlots:
    """Processes begin when they are needed, as many as attempts may run at a time.

    Attempts wait in one line, and begin when a process that has loaded the app calls its handler:
    the time of a timeout is the handler's own. While handlers are short a process gets several
    at once. None of those waits behind a slow one: a slot that is free takes them over, and the
    pump can withdraw them as if they were in the line. A handler that is too late or was cancelled
    is killed at once; when the worker stops it is asked first. What a handler started in its turn
    is killed with it, as long as it is in the same process group.
    """

    def __init__(self, app: Towline, settings: Settings, done: Done) -> None:
        self.app = app
        self.settings = settings
        self._limit = settings.concurrency
        self._leaving: set[ProcessSlot] = set()  # there are too many
        self._done = done
        self._line: deque[Attempt] = deque()
        self._slots: list[ProcessSlot] = []
        self.mutex = threading.Lock()  # of the line, and of what each slot has
        self.work = threading.Condition(self.mutex)  # something is in the line
        self.closing = False
        self.pace = Pace()

    # ---- what the pump calls

    def start(self, attempt: Attempt) -> None:
        self.start_ahead([attempt])

    def start_ahead(self, attempts: Sequence[Attempt]) -> None:
        with self.mutex:
            self._open_slots(len(self._line) + len(attempts))
            self._line.extend(attempts)
            self.work.notify(len(attempts))

    def hold_back(self) -> None:
        pass  # handlers here are not in the pump's way, or cannot be kept out of it

    def let_go(self, seconds: float) -> None:
        pass

    def interrupt(self, attempt: Attempt) -> None:
        if not isinstance(slot := attempt.sent_to, ProcessSlot):
            return
        if attempt.stopped_for is Outcome.RELEASED:
            # A thread of its own: the pump does not wait.
            asking = threading.Thread(target=slot.ask_then_kill, args=(attempt,), daemon=True)
            try:
                asking.start()
                return
            except RuntimeError:  # no room for one
                pass
        slot.kill(attempt)

    def abandon(self, attempt: Attempt) -> None:
        attempt.abandoned = True
        if isinstance(slot := attempt.sent_to, ProcessSlot):
            slot.kill(attempt)

    def resize(self, limit: int) -> None:
        with self.mutex:
            self._limit = limit
            try:
                self._open_slots(len(self._line))
            except RuntimeError as error:
                log.warning("no process can be started for what waits: %s", error)
            self.work.notify_all()  # those that are too many leave

    def close(self) -> None:
        """Return when every process has ended, or will not by any means."""
        with self.mutex:
            self.closing = True
            self.work.notify_all()
            slots = list(self._slots)
            for slot in slots:
                slot.hurry()
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for slot in slots:
            slot.thread.join(max(deadline - time.monotonic(), 0))

    # ---- what the slots call

    def take(self, slot: ProcessSlot) -> bool:
        """Give it the next attempts, if it has few; wait for one while it has none. False when the
        slot is not needed any more."""
        with self.mutex:
            while not slot.sent:
                if self.closing or slot.ran == self.settings.max_tasks_per_child:
                    return False
                if len(self._slots) - len(self._leaving) > self._limit:
                    self._leaving.add(slot)
                    return False
                if not self._line:
                    self._take_over()
                if self._line and not slot.is_alive():
                    return False  # it died while it was free: no attempt's fault
                self._fill(slot)
                if slot.taken:
                    return True
                elsewhere = any(len(other.sent) > 1 for other in self._slots)
                self.work.wait(MOMENT if elsewhere else None)
            self._fill(slot)
            return True

    def traced(self, attempt: Attempt) -> str | None:
        """Begin its span, if the app is traced: what its process is told of it."""
        tracing = self.app.tracing
        attempt.span = None if tracing is None else tracing.started(attempt)
        return None if attempt.span is None else attempt.span.text

    def put_back(self, attempts: Sequence[Attempt]) -> None:
        """They were taken and have not begun: let them be the next. The caller has the mutex."""
        self._line.extendleft(reversed(attempts))
        self.work.notify(len(attempts))

    def refuse(self, error: Exception) -> None:
        """No process can be started. The attempt that needed it goes back with nothing used if
        there is no room for one just now; else it fails, and says why."""
        with self.mutex:
            if not self._line or self.closing:
                return
            attempt = self._line.popleft()
        if isinstance(error, OSError | MemoryError):  # no process, descriptor or memory left
            log.warning("no process for %s just now, it is handed back: %s", attempt, error)
            hand_back([attempt], self._done)
        elif attempt.begin():
            log.error("no process for %s: %s", attempt, error)
            self._done(attempt, of_error(attempt, error))

    def ended(self, attempt: Attempt, ending: Ending | None) -> None:
        if not attempt.abandoned:
            self._done(attempt, ending)

    def left(self, slot: ProcessSlot) -> None:
        """This slot is no more; let another take its place if there is something to do."""
        back: list[Attempt] = []
        with self.mutex:
            self._slots.remove(slot)
            self._leaving.discard(slot)
            try:
                self._open_slots(len(self._line))
            except RuntimeError as error:
                log.warning("no process for what waits just now, it is handed back: %s", error)
                back = list(self._line)
                self._line.clear()
            self.work.notify()  # it may have been woken for what it did not take
        hand_back(back, self._done)

    # ---- the caller has the mutex

    def _fill(self, slot: ProcessSlot) -> None:
        """Give it as many as it needs to be busy for a moment, and no more than its share."""
        # A span begins when its attempt is sent, so none waits behind another there.
        has, most = len(slot.sent), self.pace.at_once if self.app.tracing is None else 1
        if has > most // 2:
            return
        share = -(-len(self._line) // len(self._slots))
        most = min(most - has, share)
        if (limit := self.settings.max_tasks_per_child) is not None:
            most = min(most, limit - slot.ran - has)
        room = MOST_BYTES_BEHIND
        while self._line and len(slot.taken) < most:
            attempt = self._line[0]
            if has or slot.taken:
                room -= len(attempt.held.arguments)
                # What was claimed for a free slot is not put behind another.
                if not attempt.ahead or attempt.held.blockers or room < 0:
                    return
            self._line.popleft()
            if not attempt.withdrawn:
                slot.taken.append(attempt)

    def _take_over(self) -> None:
        """Put back what waits behind slow handlers."""
        since = time.monotonic() - MOMENT
        for slot in self._slots:
            if len(slot.sent) > 1 and slot.heard_at <= since:
                slot.take_all_back()

    def _open_slots(self, needed: int) -> None:
        """Have as many free as are needed; RuntimeError when there is not one at all. One more that
        cannot begin does not matter as long as there are others."""
        room = 0 if self.closing else self._limit - len(self._slots)
        if room <= 0:
            return
        needed -= sum(slot.is_free for slot in self._slots)
        for _ in range(min(needed, room)):
            slot = ProcessSlot(self)
            try:
                slot.thread.start()
            except RuntimeError:
                if not self._slots:
                    raise
                return
            self._slots.append(slot)
