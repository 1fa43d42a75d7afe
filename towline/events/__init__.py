"""The event seam: what happened, published after its commit to the subscribers.

Runner and pump publish; subscribers run on a thread of their own, so that neither waits for a
logging handler or an exporter. The line between them is bounded: what does not fit is dropped and
counted. A subscriber that raises stays subscribed; that is logged, at most once a minute. An event
without a subscriber is not even built, and without events there is no thread.

Never in an event: arguments, outputs, keys, labels, passwords. The text of a job's error is in one
field, `AttemptEnded.error`, if its worker was told to say it; it is for the log, not for exporters.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection
from queue import Empty, SimpleQueue
from typing import Any

from ..errors import InvalidSetting
from . import kinds
from .kinds import EVENTS, Event

log = logging.getLogger("towline.events")

MOST_WAITING = 10_000  # events in the line
FLUSH = 2.0  # seconds in which a stop empties the line
IDLE = 5.0  # seconds after which a thread without events ends
DROPPED_EVERY = 1.0  # seconds from one report of dropped events to the next
COMPLAIN_EVERY = 60.0  # seconds from one line about a failing subscriber to the next


OF_OPERATIONS = {
    kinds.JobEnqueued.name, kinds.JobControlled.name, kinds.ChainPruned.name,
    kinds.OperationEnded.name,
}  # fmt: skip
# Not an event: whether a subscriber wants `attempt.ended` of attempts that completed.
COMPLETED = "attempt.ended: completed"

Subscriber = Callable[[Any], object]


class Events:
    """The subscribers of an app, and the line of events that wait for them."""

    def __init__(self) -> None:
        self._subscribers: dict[str, list[Subscriber]] = {}
        self._failures: dict[Subscriber, tuple[float, int]] = {}  # said when; how many since
        self.wanted: frozenset[str] = frozenset()
        self.wants_operations = False  # what the runner says of each operation
        _all.add(self)
        self._begin()

    def _begin(self) -> None:
        """In this process there is no thread yet, and nothing waits."""
        self._line: SimpleQueue[Event | threading.Event | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._dropped_reported = 0.0

    def subscribe(
        self, function: Subscriber, names: Collection[str] = (), *, trouble_only: bool = False
    ) -> None:
        """Call a function with each event of these names; without a name, with every event.

        `trouble_only`: attempts that completed are left out. Almost all do, and to build an
        event for each costs something.
        """
        for name in names or EVENTS:
            if name not in EVENTS:
                raise InvalidSetting(f"there is no event {name!r}; there are {', '.join(EVENTS)}")
            self._subscribers.setdefault(name, []).append(function)
        self.wanted |= self._subscribers.keys()
        if kinds.AttemptEnded.name in (names or EVENTS) and not trouble_only:
            self.wanted |= {COMPLETED}
        self.wants_operations = not self.wanted.isdisjoint(OF_OPERATIONS)

    def has(self, function: Subscriber) -> bool:
        """Whether it has subscribed to anything."""
        return any(function in functions for functions in self._subscribers.values())

    def publish(self, event: Event) -> None:
        """Put an event into the line, if it has a subscriber. Never waits, never raises."""
        if event.name not in self.wanted:
            return
        if self._line.qsize() >= MOST_WAITING:
            self._dropped += 1
            return
        self._line.put(event)
        if self._thread is None:
            self._start()

    def flush(self, timeout: float = FLUSH) -> bool:
        """Wait until what was published before is delivered; False when that takes longer."""
        if self._thread is None:
            return True
        delivered = threading.Event()
        self._line.put(delivered)
        return delivered.wait(timeout)

    def close(self) -> None:
        """Empty the line, for a moment at most, and end the thread."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        self.flush()
        self._line.put(None)

    def _start(self) -> None:
        with self._mutex:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._deliver_all, name="towline events", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread to spare, or the program ends: the next event tries
                return
            self._thread = thread

    # ---- in the thread

    def _deliver_all(self) -> None:
        while True:
            try:
                item = self._line.get(timeout=IDLE)
            except Empty:
                item = None
            if item is None:
                if self._end():
                    return
            elif isinstance(item, threading.Event):
                self._report_dropped()
                item.set()
            else:
                self._deliver(item)
                if self._dropped and time.monotonic() >= self._dropped_reported + DROPPED_EVERY:
                    self._report_dropped()

    def _report_dropped(self) -> None:
        dropped, self._dropped = self._dropped, 0
        if dropped:
            self._dropped_reported = time.monotonic()
            self._deliver(kinds.TelemetryDropped(count=dropped))

    def _end(self) -> bool:
        """End the thread, unless something came at the last moment."""
        with self._mutex:
            if not self._line.empty():
                return False
            self._thread = None
            return True

    def _deliver(self, event: Event) -> None:
        for subscriber in self._subscribers.get(event.name, ()):
            try:
                subscriber(event)
            except Exception as error:
                self._complain(subscriber, event, error)

    def _complain(self, subscriber: Subscriber, event: Event, error: Exception) -> None:
        said, number = self._failures.get(subscriber, (0.0, 0))
        number += 1
        if said and time.monotonic() < said + COMPLAIN_EVERY:
            self._failures[subscriber] = said, number
            return
        self._failures[subscriber] = time.monotonic(), 0
        log.error(
            "a subscriber of %s failed (%d times since the last such line)",
            event.name, number, exc_info=error,
        )  # fmt: skip


_all: weakref.WeakSet[Events] = weakref.WeakSet()


def _after_in_child() -> None:
    for events in list(_all):
        events._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
