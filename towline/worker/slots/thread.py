"""Blocking handlers: threads that take attempts from one line.

    asleep ──called──► at the line ⇄ runs an attempt ──► left behind, if that was abandoned
       ▲ └──called to watch──► watches ──► at the line, or asleep
       └── the line is empty ──┘

Threads that run quick handlers are in each other's way: one has the interpreter, and each that
comes back from a system call waits for it. So what was claimed ahead is begun by few of them, the
*crew*, and one more watches whether the line gets on. If it does not, it joins them and another
one watches.
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
from . import Done, hand_back

log = logging.getLogger("towline.worker")

LEFT_BEHIND = 32  # threads that handlers may keep after their time, or four for each slot
WATCH = 0.005  # seconds in which the line must get on, …
SPANS = 2  # … so far that it is empty after so many more of them


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
        self._first: deque[Attempt] = (
            deque()
        )  # claimed for free slots: a thread was called for each
        self._ahead: deque[Attempt] = deque()  # claimed ahead of them
        self._calls: SimpleQueue[bool] = SimpleQueue()  # for those asleep; True: to watch
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
            awake = self._threads - self._asleep - self._watched
            if 2 * len(self._ahead) >= len(attempts):  # there is more before they are done
                self._crew = min(2 * self._crew, self._limit)
            elif self._crew > 1 and not awake:  # they were done before there was more
                self._crew -= max(self._crew // 4, 1)
            self._call_all(min(self._crew - awake, len(attempts)))
            served = self._threads > 0
            if served:
                self._ahead.extend(attempts)
                self._have_watched()
        if not served:
            hand_back(attempts, self._done)

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

    def _call_all(self, number: int) -> None:
        while number > 0 and self._call():
            number -= 1

    def _call(self, *, watch: bool = False) -> bool:
        """Have one more thread at the line; RuntimeError when there is not one at all. One more
        that cannot begin does not matter as long as there are others, which come in turn."""
        if self._asleep:
            self._asleep -= 1
            self._calls.put(watch)
            return True
        if self._threads >= self._room():
            return False
        self._number += 1
        name = f"towline-{self._number}"
        try:
            threading.Thread(target=self._serve, args=(watch,), name=name, daemon=True).start()
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
        attempt = line.popleft()
        attempt.slot = self
        self._taken += 1
        return attempt

    def _have_watched(self) -> None:
        if self._ahead and not self._watched:
            self._watched = self._call(watch=True)

    # ---- the caller has not

    def _serve(self, watch: bool) -> None:
        if watch:
            self._watch()
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
            if self._calls.get():
                self._watch()

    def _watch(self) -> None:
        """Return when the line is empty, or does not get on without this thread."""
        while True:
            taken = self._taken
            time.sleep(WATCH)
            with self._mutex:
                left = len(self._ahead)
                if left and left <= SPANS * (self._taken - taken) and not self._closed:
                    continue
                self._watched = False
                if left:
                    self._crew = min(self._crew + 1, self._limit)
                    self._have_watched()
                return

    def _is_needed_again(self) -> bool:
        """The handler that was left behind has ended. The caller has the mutex."""
        self._left_behind -= 1
        if self._closed or self._asleep or not self._waiting() or self._threads >= self._room():
            return False
        self._threads += 1
        return True
