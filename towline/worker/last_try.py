"""Jobs that would fail if they lost their worker once more: each runs with nothing else beside it.

A job that kills its worker takes along what runs there, and no trace says which of them did it.
So the last try of each is made alone: the one that kills its worker then fails alone, and those
that were only beside it come through.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from .attempt import Attempt
from .duty import NEVER

WAIT_FOR_OTHERS = 1.0  # seconds for other attempts to end; then it is put off, and they go on
TRUSTED_AFTER = 30.0  # seconds after which others may join one that still lives


class LastTries:
    """Those that wait to be alone in their worker, and the one that is."""

    def __init__(self) -> None:
        self._line: deque[Attempt] = deque()
        self._running: Attempt | None = None
        self._until = 0.0
        self.want_it_all = False  # nothing else may be claimed

    def add(self, attempt: Attempt) -> None:
        self._line.append(attempt)
        self.want_it_all = True

    def has(self, attempt: Attempt) -> bool:
        """Whether it still waits."""
        return attempt in self._line

    def is_next(self, now: float) -> bool:
        """Whether one could run, if nothing else did; one that has lived so long is trusted."""
        if self._running is not None and now >= self._until:
            self.over(self._running)
        return bool(self._line) and self._running is None

    def start(self, now: float) -> Attempt:
        """The next to run; the caller gives it to its slots."""
        self._running, self._until = self._line.popleft(), now + TRUSTED_AFTER
        return self._running

    def waiting_too_long(self, now: float) -> Collection[Attempt]:
        """All that wait while something else goes on and on."""
        if self._running is not None or now < self.at:
            return ()
        return list(self._line)

    def over(self, attempt: Attempt) -> None:
        if attempt is self._running:
            self._running = None
        elif attempt in self._line:
            self._line.remove(attempt)
        self.want_it_all = bool(self._line) or self._running is not None

    @property
    def at(self) -> float:
        """When one is trusted, or has waited too long."""
        if self._running is not None:
            return self._until
        return self._line[0].claimed + WAIT_FOR_OTHERS if self._line else NEVER
