"""An event with a timeout: the one thing a pump waits for."""

from __future__ import annotations

import threading


class Bell:
    """Rung from any thread; a ring that comes between two waits is kept for the next."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._rung = False

    def ring(self) -> None:
        if self._rung:  # it has not been heard yet: once is enough
            return
        with self._condition:
            self._rung = True
            self._condition.notify_all()

    def wait(self, timeout: float | None) -> bool:
        """Wait for a ring, at most `timeout` seconds; say whether there was one."""
        with self._condition:
            if not self._rung:
                self._condition.wait(timeout)
            rung, self._rung = self._rung, False
            return rung
