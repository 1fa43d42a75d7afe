"""Deadlines of attempts: their timeouts, whether they are still ours, and those asked to stop.

too late, or not ours any more ──► asked to stop ──STOP_GRACE──► abandoned: its slot is replaced
"""

from __future__ import annotations

import time
from collections.abc import Collection

from ..model import Outcome
from .announcements import abandoned, stopping
from .attempt import Attempt, Key
from .duty import NEVER
from .ending import timed_out
from .turns import Turns

OWNERSHIP_CHECK = 0.8  # seconds between checks whether long attempts are still ours
OWNERSHIP_CHECK_WHEN_WOKEN = 0.2  # the same when a wake said that something has changed
STOP_GRACE = 2.0  # seconds an attempt has to stop after it was asked to


class Deadlines:
    """The duty to end what goes on for longer than it may."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._held = turns.held
        self._checked_at = 0.0
        self.dismissed: dict[Attempt, float] = {}  # asked to stop and not held, and until when
        self.changed = False  # a wake said that something has changed
        self.at = NEVER

    def watch(self, now: float) -> None:
        """See what comes first, as long as anything is held: it may begin at any moment."""
        first = min(self.dismissed.values(), default=NEVER)
        begun = NEVER
        for attempt in self._held.values():
            if attempt.begun is not None and attempt.begun < begun:
                begun = attempt.begun
            if attempt.deadline is not None and attempt.deadline < first:
                first = attempt.deadline
        check = self._next_ownership_check(begun)
        if check == NEVER and self._held:
            check = now + OWNERSHIP_CHECK
        self.at = min(first, check)

    def _next_ownership_check(self, begun: float) -> float:
        """Seldom, soon after a wake; `begun`: since when the longest attempt runs."""
        if begun == NEVER:
            return NEVER
        if self.changed:
            return self._checked_at + OWNERSHIP_CHECK_WHEN_WOKEN
        return max(begun, self._checked_at) + OWNERSHIP_CHECK

    def end_overdue(self, now: float) -> None:
        """Ask what is too late to stop, or abandon it. It asks nothing of the database."""
        for attempt in list(self._held.values()):
            if attempt.deadline is not None and now >= attempt.deadline:
                self._too_late(attempt, now)
        for attempt, until in list(self.dismissed.items()):
            if now >= until:
                del self.dismissed[attempt]
                self._turns.abandon(attempt)
                self._turns.spans.refused(attempt, None)

    def do(self, now: float) -> None:
        self.end_overdue(now)
        times = [a.begun for a in self._held.values() if a.begun is not None]
        if now >= self._next_ownership_check(min(times, default=NEVER)):
            self._checked_at, self.changed = now, False
            turns = self._turns
            ours = turns.run(turns.store.running(turns.worker))
            self.drop_lost([key for key in self._held if key not in ours])
        self.watch(now)

    def _too_late(self, attempt: Attempt, now: float) -> None:
        """First the handler is asked; when it does not stop, its slot is given to others."""
        if attempt.stopped_for is None:
            self._turns.publish(stopping(attempt, "timeout"))
            self._turns.ask_to_stop(attempt, Outcome.TIMEOUT)
            attempt.deadline = now + STOP_GRACE
            return
        self._turns.publish(abandoned(attempt))
        self._turns.abandon(attempt)
        if attempt.key in self._held:
            self._turns.end(attempt, timed_out(attempt))

    def drop_lost(self, keys: Collection[Key]) -> None:
        """Attempts that another worker has, or whose jobs ended from outside: their handlers are
        asked to stop, and not waited for for long."""
        for key in keys:
            attempt = self._held.get(key)
            if attempt is not None and (attempt.completed_inside or attempt.caller_commits):
                continue  # it has completed its job itself, and is not done yet
            self._turns.forget(key)
            if attempt is None:
                continue
            self._turns.end(attempt, None)
            if not attempt.withdraw():
                self._turns.publish(stopping(attempt, "lost"))
                self._turns.ask_to_stop(attempt, Outcome.CANCELLED)
                self.dismissed[attempt] = until = time.monotonic() + STOP_GRACE
                self.at = min(self.at, until)
