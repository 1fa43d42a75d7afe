"""How a test and a handler meet: by events with a generous limit, never by sleeping."""

from __future__ import annotations

import threading

from towline import Towline

LIMIT = 60.0  # seconds after which something that should have happened has not


class Gate:
    """A handler says that it is inside and stays until the test opens."""

    def __init__(self) -> None:
        self._inside = threading.Semaphore(0)
        self._open = threading.Event()

    def enter(self) -> None:
        """Called by a handler: it is here, and waits to be let out."""
        self._inside.release()
        if not self._open.wait(LIMIT):
            raise TimeoutError("the test never opened the gate")

    def pass_by(self) -> None:
        """Called by a handler that waits for something else: it is here."""
        self._inside.release()

    def wait_inside(self, number: int = 1) -> None:
        """Wait until so many more handlers are inside."""
        for _ in range(number):
            assert self._inside.acquire(timeout=LIMIT), "no handler came to the gate"

    def open(self) -> None:
        self._open.set()


def heard(event: threading.Event) -> None:
    """Wait for what a handler or the worker sets."""
    assert event.wait(LIMIT), "it never happened"


def outcomes(app: Towline, job_id: int) -> list[str]:
    """How the attempts of a job ended, oldest first."""
    return [str(attempt.outcome) for attempt in app.attempts(job_id)]
