"""Awaiting handlers: tasks on one event loop, in a thread of its own or the application's.

A handler may block the loop it runs on. Nothing that the pump asks for waits for such a loop, and
a loop of our own that does not answer is replaced:

    serving ─► silent ─► replaced ─► (it answers) what was abandoned there is cancelled ─► ended
       ▲─────────┘ (it answers)

What had not begun there moves to the next loop; what had begun ends there, or by its timeout. The
application's own loop cannot be replaced: what has not begun goes back to the database.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ..attempt import Attempt
from . import Done, hand_back

log = logging.getLogger("towline.worker")

ANSWER_CHECK = 0.5  # seconds between two checks whether the loop answers
MOST_MISSED = 10  # checks without an answer after which a loop counts as blocked


class LoopSlots:
    """Each attempt is an asyncio task; as many at a time as may run. A task is stopped by
    cancelling it; one that will not be cancelled is abandoned and goes on for itself."""

    def __init__(
        self, limit: int, done: Done, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._limit = limit
        self._done = done
        self._given = None if loop is None else HandlerLoop(loop)
        self._loop: HandlerLoop | None = self._given
        self._mutex = threading.Lock()
        self._line: deque[Attempt] = deque()
        self._called = False  # the loop is about to take from the line
        self._placed: dict[Attempt, HandlerLoop] = {}  # those with a task, and on which loop
        self._unheard: set[Attempt] = set()  # those whose loop has not heard yet to stop
        self._watched = False  # a thread listens whether the loop answers
        self._told = False  # it was logged that the application's loop is blocked
        self._closed = threading.Event()

    # ---- what the pump calls; none of it waits for a loop

    def start(self, attempt: Attempt) -> None:
        self.start_ahead([attempt])

    def start_ahead(self, attempts: Sequence[Attempt]) -> None:
        with self._mutex:
            loop = self._serving()
            served = loop is not None and (self._called or self._call(loop))
            if served:
                self._line.extend(attempts)
            self._begin_watching()
        if not served:
            hand_back(attempts, self._done)

    def resize(self, limit: int) -> None:
        with self._mutex:
            self._limit = limit
            if self._line and self._loop is not None and not self._called:
                self._call(self._loop)

    def hold_back(self) -> None:
        pass  # handlers here are not in the pump's way, or cannot be kept out of it

    def let_go(self, seconds: float) -> None:
        pass

    def interrupt(self, attempt: Attempt) -> None:
        with self._mutex:
            loop = self._placed.get(attempt)
            if loop is not None:
                self._unheard.add(attempt)
                loop.call(self._cancel, attempt, loop)

    def abandon(self, attempt: Attempt) -> None:
        with self._mutex:
            loop = self._placed.pop(attempt, None)
            if loop is None:
                return  # it has ended after all
            attempt.abandoned = True
            if attempt in self._unheard:  # it has had its time, and not even heard of it
                self._unheard.discard(attempt)
                loop.blocked = True
            if loop is not self._loop:
                loop.call(self._wind_up, loop)
            elif not loop.blocked:
                self._call(loop)
            back = self._mend()
        hand_back(back, self._done)

    def close(self) -> None:
        with self._mutex:
            self._closed.set()
            loop, self._loop = self._loop, None
            if loop is not None and loop is not self._given:
                loop.call(loop.end)

    # ---- loops

    def _call(self, loop: HandlerLoop) -> bool:
        """Have the loop take from the line; False when it is closed. The caller has the mutex."""
        self._called = loop.call(self._fill, loop)
        return self._called

    def _serving(self) -> HandlerLoop | None:
        """The loop for new attempts; None when it is the application's and blocked or closed."""
        if self._loop is not None and self._loop.blocked and self._loop is not self._given:
            self._replace(self._loop)
        if self._loop is None and not self._closed.is_set():
            self._loop = HandlerLoop.begun()
        loop = self._loop
        return None if loop is None or loop.blocked else loop

    def _replace(self, loop: HandlerLoop) -> None:
        """Leave a blocked loop to what has begun there. The caller has the mutex."""
        fresh = HandlerLoop.begun()  # or all stays as it is
        log.warning("an async handler blocks its event loop: other attempts go to another loop")
        self._put_back(loop)
        self._loop = fresh
        loop.call(self._wind_up, loop)
        self._call(fresh)

    def _put_back(self, loop: HandlerLoop) -> None:
        """Put what has not begun on this loop first in the line. The caller has the mutex."""
        moved = [a for a, at in self._placed.items() if at is loop and a.begun is None]
        for attempt in moved:
            del self._placed[attempt]
        self._line.extendleft(reversed(moved))

    def _mend(self) -> list[Attempt]:
        """See that what waits is not kept by a blocked loop; return what must go back. The caller
        has the mutex."""
        loop = self._loop
        if loop is None or not loop.blocked:
            return []
        self._put_back(loop)
        if self._line and loop is not self._given:
            try:
                self._replace(loop)
                return []
            except RuntimeError as error:  # no thread for it
                log.warning("an async handler blocks its event loop, and %s", error)
        waiting = list(self._line)
        self._line.clear()
        if waiting and not (self._told or loop is not self._given or loop.loop.is_closed()):
            self._told = True
            log.warning(
                "the application's event loop does not answer, so async handlers cannot begin on "
                "it: a handler blocks it, or job.result() where await job.aresult() is meant"
            )
        return waiting

    # ---- the thread that listens whether the loop answers

    def _begin_watching(self) -> None:
        """The caller has the mutex."""
        if self._watched:
            return
        watch = threading.Thread(target=self._watch_loops, name="towline-loop-watch", daemon=True)
        try:
            watch.start()
            self._watched = True
        except RuntimeError:
            pass  # with the next attempt, perhaps

    def _watch_loops(self) -> None:
        """As long as there is something to watch."""
        while not self._closed.wait(ANSWER_CHECK):
            with self._mutex:
                self._watched = bool(self._line or self._placed)
                if not self._watched:
                    return
                if self._loop is not None:
                    self._loop.check()
                back = self._mend()
            hand_back(back, self._done)

    # ---- on the loop

    def _fill(self, loop: HandlerLoop) -> None:
        with self._mutex:
            if loop is not self._loop:
                return
            self._called = False
            fresh = self._take(loop)
        for attempt in fresh:  # some loops begin a task at once, and it needs the mutex
            loop.place(self._serve(attempt, loop))

    def _take(self, loop: HandlerLoop) -> list[Attempt]:
        """As many from the line as there is room for. The caller has the mutex."""
        fresh: list[Attempt] = []
        while self._line and len(self._placed) < self._limit:
            attempt = self._line.popleft()
            if not attempt.withdrawn:
                self._placed[attempt] = loop
                fresh.append(attempt)
        return fresh

    async def _serve(self, attempt: Attempt, loop: HandlerLoop) -> None:
        with self._mutex:
            if self._placed.get(attempt) is not loop:
                return  # the loop was blocked before it began, and it has moved on
            if not attempt.begin():
                self._placed.pop(attempt, None)
                self._call(loop)
                return
        attempt.slot = asyncio.current_task()
        if attempt.stopped_for is not None and attempt.slot is not None:
            attempt.slot.cancel()
        ending = await attempt.arun()
        if loop is self._given and _is_cancelled():
            ending = attempt.cut_short(ending)
        with self._mutex:
            self._unheard.discard(attempt)
            if self._placed.get(attempt) is not loop:
                return  # abandoned
            del self._placed[attempt]
            replaced = loop is not self._loop
            fresh = [] if replaced else self._take(loop)
        self._done(attempt, ending)
        for following in fresh:
            loop.place(self._serve(following, loop))
        if replaced:
            self._wind_up(loop)

    def _cancel(self, attempt: Attempt, loop: HandlerLoop) -> None:
        with self._mutex:
            self._unheard.discard(attempt)
            loop.blocked = False
        if attempt.slot is not None:  # one that has not begun would vanish
            attempt.slot.cancel()

    def _wind_up(self, loop: HandlerLoop) -> None:
        """A loop that was replaced has come back: it ends with the last that is its own."""
        with self._mutex:
            own = {attempt.slot for attempt, at in self._placed.items() if at is loop}
        for task in loop.tasks - own:
            task.cancel()
        if not own:
            loop.end()


def _is_cancelled() -> bool:
    """Whether the application has cancelled this task of ours, as it does with all of them when its
    loop ends."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class HandlerLoop:
    """One event loop: what runs on it, and whether it answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.blocked = False
        self._ended = False
        self._missed = 0  # checks since it was last heard
        self.tasks: set[asyncio.Task[None]] = set()

    @classmethod
    def begun(cls) -> HandlerLoop:
        """A loop in a thread of its own; RuntimeError when there is no room for one."""
        loop = asyncio.new_event_loop()
        begun = cls(loop)
        thread = threading.Thread(target=begun._serve, name="towline-loop", daemon=True)
        try:
            thread.start()
        except BaseException:
            loop.close()
            raise
        return begun

    def call(self, action: Callable[..., object], *args: object) -> bool:
        """Have something done on the loop; False when it is closed."""
        try:
            self.loop.call_soon_threadsafe(action, *args)
            return True
        except RuntimeError:
            return False

    def end(self) -> None:
        """Stop the loop, once: what comes after that is its own cleaning up."""
        if not self._ended:
            self._ended = True
            self.loop.stop()

    def check(self) -> None:
        """Ask for an answer; a loop that missed too many checks is blocked. Checks are
        counted, not seconds: a process that was stopped for long has one of them to make good."""
        if self._missed >= MOST_MISSED or self.loop.is_closed():
            self.blocked = True
        elif self._missed == 0:
            self.call(self._answer)
        self._missed += 1

    def _answer(self) -> None:
        self._missed = 0
        self.blocked = False

    def place(self, serving: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(serving)
        self.tasks.add(task)  # asyncio itself would lose it
        task.add_done_callback(self.tasks.discard)

    def _serve(self) -> None:
        """The thread of a loop of our own."""
        loop = self.loop
        asyncio.set_event_loop(loop)
        while not self._ended:  # also when a handler stops it, or its task lets an exit out
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                # asyncio lets it out of its loop, after those who await the task had it. Other
                # handlers have nothing to do with it.
                pass
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        for task in asyncio.all_tasks(loop):
            # It swallowed that too, and will never go on: said when it was abandoned.
            setattr(task, "_log_destroy_pending", False)  # noqa: B010
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
