"""Blocking handlers: threads that take attempts from one line."""

from __future__ import annotations

import contextvars
import logging
import threading
from queue import Empty, SimpleQueue

from ..attempt import Attempt
from . import Done, hand_back

log = logging.getLogger("towline.worker")

LEFT_BEHIND = 32  # threads that handlers may keep after their time, or four for each slot


class ThreadSlots:
    """Threads begin when they are needed, as many as attempts may run at a time.

    A thread cannot be stopped from outside. One whose attempt was abandoned is left behind and
    replaced; it takes attempts again when its handler has ended and a thread is needed. When too
    many were left behind, a slot is not replaced until one of them ends.
    """

    def __init__(self, limit: int, done: Done) -> None:
        self._limit = limit
        self._done = done
        self._line: SimpleQueue[Attempt | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._threads = 0
        self._left_behind = 0
        self._most_left_behind = max(LEFT_BEHIND, 4 * limit)
        # Attempts in the line, and threads that are about to take one: both change together.
        self._waiting = 0
        self._idle = 0
        self._number = 0
        self._closed = False
        self._context = contextvars.copy_context()

    def start(self, attempt: Attempt) -> None:
        with self._mutex:
            if self._threads < self._limit:
                self._begin_threads(self._waiting + 1)
            served = self._threads > 0
            if served:
                self._waiting += 1
        if served:  # outside the mutex, which the thread that takes it needs at once
            self._line.put(attempt)
        else:
            hand_back([attempt], self._done)

    def interrupt(self, attempt: Attempt) -> None:
        pass  # it has been asked; nothing else can be done to a thread

    def abandon(self, attempt: Attempt) -> None:
        back: list[Attempt] = []
        with self._mutex:
            if attempt.slot is None or attempt.abandoned:
                return  # it has ended after all, and its thread goes on
            attempt.abandoned = True
            self._threads -= 1  # its thread is no slot any more
            self._left_behind += 1
            if self._left_behind > self._most_left_behind:
                log.warning(
                    "%s is one of %d handlers that go on though they were told to stop: its slot "
                    'is not replaced until one of them ends; run_in="process" can be killed',
                    attempt, self._left_behind,
                )  # fmt: skip
            try:
                self._begin_threads(self._waiting)
            except RuntimeError as error:
                log.warning("the slot of %s cannot be replaced now: %s", attempt, error)
            if not self._threads:
                back = self._whole_line()
        hand_back(back, self._done)

    def resize(self, limit: int) -> None:
        with self._mutex:
            self._limit = limit
            self._most_left_behind = max(LEFT_BEHIND, 4 * limit)
            while self._threads > limit:  # as many leave as come to the line next
                self._threads -= 1
                self._line.put(None)
            try:
                self._begin_threads(self._waiting)
            except RuntimeError as error:
                log.warning("no thread can be started for what waits: %s", error)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            for _ in range(self._threads):
                self._line.put(None)

    # ---- the caller has the mutex

    def _room(self) -> int:
        """How many threads there may be, apart from those left behind."""
        return self._limit - max(self._left_behind - self._most_left_behind, 0)

    def _begin_threads(self, needed: int) -> None:
        """Have as many idle as are needed; RuntimeError when there is not one at all. One more that
        cannot begin does not matter as long as there are others, which come to the line in turn."""
        while self._idle < needed and self._threads < self._room():
            self._number += 1
            name = f"towline-{self._number}"
            try:
                threading.Thread(target=self._serve, name=name, daemon=True).start()
            except RuntimeError:
                if not self._threads:
                    raise
                return
            self._threads += 1
            self._idle += 1

    def _whole_line(self) -> list[Attempt]:
        waiting: list[Attempt] = []
        leaving = 0
        try:
            while True:
                if attempt := self._line.get_nowait():
                    waiting.append(attempt)
                else:
                    leaving += 1
        except Empty:
            pass
        for _ in range(leaving):
            self._line.put(None)
        self._waiting -= len(waiting)
        return waiting

    # ---- the caller has not

    def _serve(self) -> None:
        while True:
            attempt = self._line.get()
            with self._mutex:
                self._idle -= 1
                if attempt is None:
                    if self._closed or self._threads >= self._room():
                        return
                    self._threads += 1  # it was one too many, and is not any more
                    self._idle += 1
                    continue
                self._waiting -= 1
                attempt.slot = self
            ending = self._context.copy().run(attempt.run) if attempt.begin() else None
            with self._mutex:
                attempt.slot = None
                heard = not (attempt.abandoned or attempt.withdrawn)
                if attempt.abandoned and not self._is_needed_again():
                    return
                self._idle += 1
            if heard:
                self._done(attempt, ending)
            del attempt, ending

    def _is_needed_again(self) -> bool:
        """The handler that was left behind has ended. The caller has the mutex."""
        self._left_behind -= 1
        if self._closed or self._idle >= self._waiting or self._threads >= self._room():
            return False
        self._threads += 1
        return True
