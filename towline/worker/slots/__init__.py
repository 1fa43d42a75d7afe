"""Where handlers run: threads, an event loop, processes of their own. A slot runs one attempt.

A slot reports to the pump by `done(attempt, ending)`, from a thread of its own. What an abandoned
attempt reports is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ...records import Ending
from ..attempt import Attempt
from ..ending import put_off

Done = Callable[[Attempt, Ending | None], None]


class Slots(Protocol):
    """Slots of one kind."""

    def start(self, attempt: Attempt) -> None:
        """Run the attempt as soon as a slot is free; raise when there is no room for one, such as
        RuntimeError when no thread can be started."""

    def start_ahead(self, attempts: Sequence[Attempt]) -> None:
        """The same of those that were claimed ahead of free slots, in this order: they may wait for
        one another while handlers are quick."""

    def hold_back(self) -> None:
        """Begin nothing more of what was claimed ahead, for a few milliseconds at most."""

    def let_go(self, seconds: float) -> None:
        """Begin it again, for so long."""

    def interrupt(self, attempt: Attempt) -> None:
        """The attempt was asked to stop (`attempt.stop`, `attempt.stopped_for`): make it, if this
        kind can; its end is reported as always."""

    def abandon(self, attempt: Attempt) -> None:
        """It did not stop: free its slot at once. What the attempt reports later is dropped."""

    def resize(self, limit: int) -> None:
        """Run so many at a time from now on; from any thread. What runs already runs on."""

    def close(self) -> None:
        """No attempt is left: end the slots."""


def hand_back(attempts: Iterable[Attempt], done: Done) -> None:
    """No slot can take these: they go back to the database, nothing used."""
    for attempt in attempts:
        if attempt.withdraw():
            done(attempt, put_off(attempt))
