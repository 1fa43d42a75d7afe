"""Blocking handlers: threads that take attempts from one line.

    asleep ──called──► at the line ⇄ runs an attempt ──► left behind, if that was abandoned
       ▲── the line is empty ──┘

Threads that run quick handlers are in each other's way, and in the pump's: one has the interpreter,
and each that comes back from a system call waits for it. So what was claimed ahead is begun by few
of them, the *crew*, and only while the database works, where the pump says so. A thread beside them
watches whether the line gets on; if it does not, it calls one more.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue

from ..attempt import Attempt
from ..duty import NEVER
from . import Done, hand_back

log = logging.getLogger("towline.worker")

LEFT_BEHIND = 32  # threads that handlers may keep after their time, or four for each slot
WATCH = 0.005  # seconds in which the line must get on, …
SPANS = 2  # … so far that it is empty after so many more of them
LOOKS = 50  # of the watch, at a line where nothing happens


class ThreadSlots:
    """Threads begin when they are needed, as many as attempts may run at a time.

    A thread cannot be stopped from outside. One whose attempt was abandoned is left behind and
    replaced; it takes attempts again when its handler has ended and a thread is needed. When too
    many were left behind, a slot is not replaced until one of them ends.
    """

    def __init__(self, limit: int, done: Done) -> None:
        self._limit = limit
        self._done = done
        self._mutex = threading.Lock()
        # Claimed for free slots, and a thread was called for each; claimed ahead of them.
        self._first: deque[Attempt] = deque()
        self._ahead: deque[Attempt] = deque()
        self._behind = False  # there was more before they were done
        self._until = NEVER  # when no more of what was claimed ahead may begin
        self._calls: SimpleQueue[None] = SimpleQueue()  # for those asleep
        self._threads = 0
        self._asleep = 0
        self._watched = False  # a thread watches the line
        self._crew = limit  # threads that suffice for what was claimed ahead, as it went so far
        self._taken = 0  # attempts, ever
        self._left_behind = 0
        self._most_left_behind = max(LEFT_BEHIND, 4 * limit)
        self._number = 0
        self._closed = False
        self._context = contextvars.copy_context()

    def start(self, attempt: Attempt) -> None:
        with self._mutex:
            self._call()
            served = self._threads > 0
            if served:
                self._first.append(attempt)
        if not served:
            hand_back([attempt], self._done)

    def start_ahead(self, attempts: Sequence[Attempt]) -> None:
        with self._mutex:
            awake = self._threads - self._asleep
            self._behind = 2 * len(self._ahead) >= len(attempts)
            if self._behind:  # there is more before they are done
                self._crew = min(2 * self._crew, self._limit)
            elif self._crew > 1 and not awake:  # they were done before there was more
                self._crew -= max(self._crew // 4, 1)
            needed = 0 if self._is_held_back() else self._crew - awake
            self._call_all(min(needed, len(attempts)) if self._threads else max(needed, 1))
            served = self._threads > 0
            if served:
                self._ahead.extend(attempts)
                self._begin_watching()
        if not served:
            hand_back(attempts, self._done)

    def hold_back(self) -> None:
        self._until = 0.0

    def let_go(self, seconds: float) -> None:
        with self._mutex:
            self._until = time.monotonic() + seconds
            awake = self._threads - self._asleep
            self._call_all(min(self._crew - awake, len(self._ahead)))

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
                self._call_all(self._waiting())
            except RuntimeError as error:
                log.warning("the slot of %s cannot be replaced now: %s", attempt, error)
            if not self._threads:
                back = [*self._first, *self._ahead]
                self._first.clear()
                self._ahead.clear()
        hand_back(back, self._done)

    def resize(self, limit: int) -> None:
        with self._mutex:
            self._limit = limit
            self._most_left_behind = max(LEFT_BEHIND, 4 * limit)
            if self._threads > limit:  # as many leave as come to the line next
                self._call_all(self._asleep)
                return
            try:
                self._call_all(self._waiting())
            except RuntimeError as error:
                log.warning("no thread can be started for what waits: %s", error)

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._call_all(self._asleep)

    # ---- the caller has the mutex

    def _waiting(self) -> int:
        return len(self._first) + len(self._ahead)

    def _room(self) -> int:
        """How many threads there may be, apart from those left behind."""
        return self._limit - max(self._left_behind - self._most_left_behind, 0)

    def _is_held_back(self) -> bool:
        """Handlers that need several threads, or more time than one has, wait for more than the
        interpreter: they are in nobody's way."""
        if self._crew > 1 or self._behind:
            return False
        return time.monotonic() >= self._until

    def _call_all(self, number: int) -> None:
        while number > 0 and self._call():
            number -= 1

    def _call(self) -> bool:
        """Have one more thread at the line; RuntimeError when there is not one at all. One more
        that cannot begin does not matter as long as there are others, which come in turn."""
        if self._asleep:
            self._asleep -= 1
            self._calls.put(None)
            return True
        if self._threads >= self._room():
            return False
        self._number += 1
        name = f"towline-{self._number}"
        try:
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        except RuntimeError:
            if not self._threads:
                raise
            return False
        self._threads += 1
        return True

    def _is_too_many(self) -> bool:
        return self._closed or self._threads > self._room()

    def _take(self) -> Attempt | None:
        """The next in the line for a thread that may go on."""
        line = self._first or self._ahead
        if not line or self._is_too_many():
            return None
        if line is self._ahead and self._is_held_back():
            return None
        attempt = line.popleft()
        attempt.slot = self
        self._taken += 1
        return attempt

    def _begin_watching(self) -> None:
        if self._watched:
            return
        try:
            threading.Thread(target=self._watch, name="towline-watch", daemon=True).start()
            self._watched = True
        except RuntimeError:  # no room for it: all that there is may work
            self._until = NEVER
            self._call_all(len(self._ahead))

    # ---- the caller has not

    def _serve(self) -> None:
        attempt = self._wait()
        while attempt is not None:
            ending = self._context.copy().run(attempt.run) if attempt.begin() else None
            with self._mutex:
                attempt.slot = None
                heard = not (attempt.abandoned or attempt.withdrawn)
                if attempt.abandoned and not self._is_needed_again():
                    return
                following = self._take()
            if heard:
                self._done(attempt, ending)
            del ending
            attempt = following or self._wait()
            del following

    def _wait(self) -> Attempt | None:
        """The next attempt, once there is one; None: this thread is not needed any more."""
        while True:
            with self._mutex:
                if self._is_too_many():
                    self._threads -= 1
                    return None
                if (attempt := self._take()) is not None:
                    return attempt
                self._asleep += 1
            self._calls.get()

    def _watch(self) -> None:
        """As long as something is claimed ahead, and for a moment."""
        looks = LOOKS
        while looks:
            taken = self._taken
            time.sleep(WATCH)
            with self._mutex:
                left, gone = len(self._ahead), self._taken - taken
                looks = LOOKS if left or gone else looks - 1
                if self._closed or not looks:
                    self._watched = False
                    return
                if left > SPANS * gone:
                    self._until = NEVER
                    self._crew = min(self._crew + 1, self._limit)
                    self._call()

    def _is_needed_again(self) -> bool:
        """The handler that was left behind has ended. The caller has the mutex."""
        self._left_behind -= 1
        if self._closed or self._asleep or not self._waiting() or self._threads >= self._room():
            return False
        self._threads += 1
        return True
