"""How many attempts a process is given at once, measured from how long its handlers take."""

from __future__ import annotations

MOMENT = 0.004  # seconds: as much work is given at once, and no handler that takes longer waits
MOST_AT_ONCE = 64
OVERHEAD = 50e-6  # seconds between two handlers in one process
LONGEST_PAUSE = 0.001  # seconds between two looks at what a process says


class Pace:
    """A moving average of handlers' times. It is slow until handlers have shown that they are not,
    and one slow handler counts at once: what is given behind the next would wait for it."""

    def __init__(self) -> None:
        self._handler = MOMENT

    def ended(self, number: int, lasted: float) -> None:
        """So many have ended, whose handlers took so many seconds together."""
        mean = lasted / number
        weight = number / (number + 1)
        self._handler = max(mean, self._handler + (mean - self._handler) * weight)

    @property
    def at_once(self) -> int:
        return max(1, min(int(MOMENT / (self._handler + OVERHEAD)), MOST_AT_ONCE))

    def pause(self, number: int) -> float:
        """Seconds in which half of so many have ended: until then nothing need be done for them."""
        return min(number * (self._handler + OVERHEAD) / 2, LONGEST_PAUSE)
