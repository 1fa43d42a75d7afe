"""The event seam: what happened, published after its commit to the subscribers.

Runner and pump publish; subscribers run on a thread of their own, so that neither waits for a
logging handler or an exporter. The line between them is bounded: what does not fit is dropped and
counted. A subscriber that raises stays subscribed; that is logged, at most once a minute. An event
without a subscriber is not even built, and without events there is no thread.

Never in an event: arguments, outputs, keys, labels, passwords. What may quote others, as the text
of an error does, is private: our log gets it, subscribers of the application get events without.
"""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import InvalidSetting
from . import kinds
from .kinds import EVENTS, Event

if TYPE_CHECKING:
    from .tally import Counter, Tally

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
# Nor is this: whether one wants an event of each of those; else rows of them will do.
EACH = "attempt.ended: each"
EACH_BEGIN = "attempt.started: each"

Subscriber = Callable[[Any], object]
Errand = Callable[[], object]
# Events; somebody who waits until the line is empty; None ends the thread.
Item = Event | Sequence[Event] | Errand | threading.Event | None


class Subscription(Struct, eq=False):
    """A function that is told of events."""

    function: Subscriber
    trouble_only: bool
    logs: bool
    complained_at: float | None = None
    failures: int = 0  # since then

    def calls(self, function: Subscriber) -> bool:
        """Whether it is this one; a bound method is made anew each time it is named."""
        both = self.function, function
        if all(isinstance(each, MethodType | BuiltinMethodType) for each in both):
            return self.function == function
        return self.function is function

    def complain(self, event: Event, error: Exception) -> None:
        """Say that it failed, once in a while."""
        now = time.monotonic()
        self.failures += 1
        if self.complained_at is None or now >= self.complained_at + COMPLAIN_EVERY:
            log.error(
                "a subscriber of %s failed (%d times since the last such line)",
                event.name, self.failures, exc_info=error,
            )  # fmt: skip
            self.complained_at, self.failures = now, 0


class Events:
    """The subscribers of an app, and the line of events that wait for them."""

    def __init__(self) -> None:
        # Replaced, never changed: the thread may be going through them.
        self._subscriptions: dict[str, tuple[Subscription, ...]] = {}
        self.wanted: frozenset[str] = frozenset()
        self.wants_operations = False  # what the runner says of each operation
        # What is current while subscribers are told of an event: that of the attempt's span.
        self.surroundings: Callable[[Event], AbstractContextManager[object]] | None = None
        # Rows of attempts, for who only counts them; made for the first who does.
        self.begun: Tally | None = None
        self.over: Tally | None = None
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        """In this process there is no thread yet, and nothing waits."""
        self._line: SimpleQueue[Item] = SimpleQueue()
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._dropped = 0
        self._dropped_reported = 0.0
        for tally in filter(None, (self.begun, self.over)):
            tally.begin()

    def subscribe(
        self,
        function: Subscriber,
        names: Collection[str] = (),
        *,
        trouble_only: bool = False,
        logs: bool = False,
    ) -> None:
        """Call a function with each event of these names; without a name, with every event.

        `trouble_only`: attempts that completed are left out. Almost all do, and to build an
        event for each costs something. `logs`: it is our own log, which sees what is private.
        """
        check_subscriber(function, names)
        new = Subscription(function, trouble_only, logs)
        for name in names or EVENTS:
            others = self._all_but(name, function)  # one that is there already is told once
            self._subscriptions[name] = (*others, new)
        self._look_who_listens()

    def unsubscribe(self, function: Subscriber) -> None:
        """Call it no more; what waits in the line does not reach it either."""
        left = {name: self._all_but(name, function) for name in self._subscriptions}
        self._subscriptions = {name: others for name, others in left.items() if others}
        self._look_who_listens()

    def count(self, begun: Counter | None, over: Counter) -> None:
        """Call functions with rows of attempts that were begun, and of those that are over."""
        from .tally import Tally

        if self.begun is None or self.over is None:
            self.begun, self.over = Tally(self), Tally(self)
        if begun is not None:
            self.begun.counters = *self.begun.counters, begun
        self.over.counters = *self.over.counters, over
        self._look_who_listens()

    def count_no_more(self, *counters: Counter) -> None:
        for tally in filter(None, (self.begun, self.over)):
            tally.counters = tuple(each for each in tally.counters if each not in counters)
        self._look_who_listens()

    def _all_but(self, name: str, function: Subscriber) -> tuple[Subscription, ...]:
        known = self._subscriptions.get(name, ())
        return tuple(each for each in known if not each.calls(function))

    def _look_who_listens(self) -> None:
        wanted = set(self._subscriptions)
        ends = self._subscriptions.get(kinds.AttemptEnded.name, ())
        if not all(each.trouble_only for each in ends):
            wanted |= {COMPLETED, EACH}
        if kinds.AttemptStarted.name in wanted:
            wanted.add(EACH_BEGIN)
        if self.begun is not None and self.begun.counters:
            wanted.add(kinds.AttemptStarted.name)
        if self.over is not None and self.over.counters:
            wanted |= {kinds.AttemptEnded.name, COMPLETED}
        self.wanted = frozenset(wanted)
        self.wants_operations = not self.wanted.isdisjoint(OF_OPERATIONS)

    def has(self, function: Subscriber) -> bool:
        """Whether it has subscribed to anything."""
        return any(each.calls(function) for all in self._subscriptions.values() for each in all)

    def publish(self, event: Event) -> None:
        """Put an event into the line, if it has a subscriber. Never waits, never raises."""
        if event.name in self.wanted:
            self._put(event, 1)

    def call(self, errand: Errand) -> None:
        """Have something done by the thread, behind the events that were published before; nothing
        when the line is full."""
        self._put(errand, 1)

    def call_in_any_case(self, errand: Errand) -> None:
        """The same of an errand that is in the line once at most: also when that is full."""
        self._enter(errand)

    def publish_all(self, events: Sequence[Event]) -> None:
        """The same for events of one kind that belong together: one place in the line."""
        if events and events[0].name in self.wanted:
            self._put(events, len(events))

    def drop(self, number: int) -> None:
        """So many could not be told."""
        self._dropped += number

    def _put(self, item: Event | Sequence[Event] | Errand, number: int) -> None:
        if self._line.qsize() >= MOST_WAITING:
            self.drop(number)
        else:
            self._enter(item)

    def _enter(self, item: Event | Sequence[Event] | Errand) -> None:
        self._line.put(item)
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
                if callable(item):
                    self._do(item)
                else:
                    for event in (item,) if isinstance(item, Event) else item:
                        self._deliver(event)
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

    def _do(self, errand: Errand) -> None:
        try:
            errand()
        except Exception as error:
            log.error("an errand of the events' thread failed", exc_info=error)

    def _deliver(self, event: Event) -> None:
        if self.surroundings is None:
            self._tell(event)
        else:
            with self.surroundings(event):
                self._tell(event)

    def _tell(self, event: Event) -> None:
        for each in self._subscriptions.get(event.name, ()):
            try:
                each.function(event if each.logs else event.public())
            except Exception as error:
                each.complain(event, error)


def check_subscriber(function: Subscriber, names: Collection[str]) -> None:
    """It can be called with events of these names."""
    for name in names:
        if name not in EVENTS:
            raise InvalidSetting(f"there is no event {name!r}; there are {', '.join(EVENTS)}")
    if not callable(function):
        raise InvalidSetting(f"a subscriber is a function, not {function!r}")
    called = getattr(function, "func", function)  # behind a partial
    if any(inspect.iscoroutinefunction(each) for each in (called, type(called).__call__)):
        raise InvalidSetting(
            f"{function!r} awaits, and events are told in a thread without a loop: let a plain "
            "function hand them over"
        )


_all: weakref.WeakSet[Events] = weakref.WeakSet()


def _after_in_child() -> None:
    for events in list(_all):
        events._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
