"""Blocking handlers: threads that take attempts from one line."""

from __future__ import annotations

import contextvars
import threading
from queue import SimpleQueue

from ..attempt import Attempt
from . import Done


class ThreadSlots:
    """Threads begin when they are needed, as many as attempts may run at a time.

    A thread cannot be stopped from outside. One whose attempt was abandoned is replaced, and ends
    when its handler does.
    """

    def __init__(self, limit: int, done: Done, name: str = "towline") -> None:
        self._limit = limit
        self._done = done
        self._name = name
        self._line: SimpleQueue[Attempt | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._threads = 0
        # Attempts in the line and threads at its end: both change together, when one takes one.
        self._waiting = 0
        self._idle = 0
        self._number = 0
        self._context = contextvars.copy_context()

    def start(self, attempt: Attempt) -> None:
        with self._mutex:
            self._waiting += 1
            if self._idle < self._waiting and self._threads < self._limit:
                self._begin_thread()
        self._line.put(attempt)

    def interrupt(self, attempt: Attempt) -> None:
        pass  # it has been told; nothing else can be done to a thread

    def abandon(self, attempt: Attempt) -> None:
        with self._mutex:
            if attempt.slot is None:
                return  # it has ended after all, and its thread goes on
            attempt.abandoned = True
            self._threads -= 1  # its thread is nobody's any more
            if self._idle < self._waiting:
                self._begin_thread()

    def close(self) -> None:
        with self._mutex:
            for _ in range(self._threads):
                self._line.put(None)

    def _begin_thread(self) -> None:
        self._threads += 1
        self._number += 1
        thread = threading.Thread(
            target=self._serve, name=f"{self._name}-{self._number}", daemon=True
        )
        thread.start()

    def _serve(self) -> None:
        while True:
            with self._mutex:
                self._idle += 1
            attempt = self._line.get()
            with self._mutex:
                self._idle -= 1
                if attempt is None:
                    return
                self._waiting -= 1
                attempt.slot = self
            ending = self._context.copy().run(attempt.run) if attempt.begin() else None
            with self._mutex:
                attempt.slot = None
                if attempt.abandoned:
                    return
            if not attempt.withdrawn:
                self._done(attempt, ending)
