"""The connections of this process: lent, given back, opened by the thread that needs one.

There is no thread and no lock in it. Each step is one that Python does whole, and what an interrupt
(Ctrl-C, a time limit by signal) tears from its user is closed by being forgotten: its permit ends
as soon as nothing refers to the connection. A thread that opens one learns at once why it cannot.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from weakref import ref

from .own_connection import OwnConnection

IDLE = 300.0  # seconds after which an unused connection is closed
LOOK = 0.2  # seconds between looks of a thread that waits, should it not be called
OPENING = 60.0  # seconds that opening a connection may take

_inherited: list[object] = []  # of a parent process, kept from being closed in the child


class AllInUse(Exception):
    """No connection was given back in time."""


class Permit:
    """The right to one connection."""

    __slots__ = ("opening_until", "raw")

    def __init__(self) -> None:
        self.opening_until = time.monotonic() + OPENING
        self.raw: ref[OwnConnection] | None = None

    def is_taken(self, now: float) -> bool:
        if self.raw is None:
            return now < self.opening_until
        raw = self.raw()
        return raw is not None and not raw.closed


class Waiter:
    """A thread in the line, and what it is given."""

    __slots__ = ("bell", "gift")

    def __init__(self) -> None:
        self.bell = threading.Lock()
        self.bell.acquire()
        self.gift: list[OwnConnection] = []


class Pool:
    """At most so many connections, opened when needed; the last one given back is lent first."""

    def __init__(self, connect: Callable[[], OwnConnection], most: int) -> None:
        self._connect = connect
        self._most = most
        self._pid = os.getpid()
        self._idle: list[OwnConnection] = []
        self._line: deque[Waiter] = deque()
        self._permits: list[Permit] = []  # in the order of asking; the first of them count
        self._closed = False

    @contextmanager
    def lent(self, seconds: float) -> Iterator[OwnConnection]:
        """A connection for one use: closed if an interrupt came, else given back."""
        held: list[OwnConnection] = []
        sound = False
        try:
            try:
                yield self.lend(held, seconds)
                sound = True
            except Exception:
                sound = True
                raise
            finally:
                self.take_back(held, sound=sound)
        except BaseException:
            self.take_back(held, sound=False)
            raise

    def lend(self, held: list[OwnConnection], seconds: float) -> OwnConnection:
        """Put a connection into `held`, and return it. Raises AllInUse after so many seconds."""
        if not self._pick(held):
            self._find(held, seconds)
        return held[-1]

    def take_back(self, held: list[OwnConnection], *, sound: bool) -> None:
        """Take what is in `held`, if anything: to lend it again if it is sound, else to close."""
        while held:
            raw = held.pop()
            try:
                if self._pid != os.getpid():
                    _inherited.append(raw)
                elif sound and not self._closed and raw.usable:
                    self._give(raw)
                else:
                    raw.close()
                    self._call(None)
            except BaseException:
                raw.close()
                raise

    def drop_stale(self) -> None:
        """The server has gone, or was away: close what it has closed."""
        self._drop(lambda raw: raw.stale)

    def trim(self) -> None:
        """Close what has been idle for long."""
        since = time.monotonic() - IDLE
        self._drop(lambda raw: raw.since < since)

    def close(self) -> None:
        """Close what is idle now, and the rest when it is given back."""
        self._closed = True
        held: list[OwnConnection] = []
        while self._pick(held):
            held.pop().close()

    def leave(self) -> None:
        """In a forked child: keep the parent's connections from being closed here."""
        _inherited.append(self)

    # ---- giving

    def _give(self, raw: OwnConnection) -> None:
        raw.since = now = time.monotonic()
        if self._line and self._call(raw):
            return
        self._idle.append(raw)
        if self._closed:
            self.close()
        elif now - self._idle[0].since > IDLE:
            self.trim()

    def _call(self, raw: OwnConnection | None) -> bool:
        """Call the first of the line, with a connection for it, or to open one itself."""
        try:
            waiter = self._line.popleft()
        except IndexError:
            return False
        if raw is not None:
            waiter.gift.append(raw)
        waiter.bell.release()
        return True

    def _drop(self, is_unwanted: Callable[[OwnConnection], bool]) -> None:
        for raw in filter(is_unwanted, list(self._idle)):
            with suppress(ValueError):  # lent meanwhile
                self._idle.remove(raw)
                raw.close()

    # ---- finding

    def _pick(self, held: list[OwnConnection]) -> bool:
        try:
            held.append(self._idle.pop())
        except IndexError:
            return False
        return True

    def _find(self, held: list[OwnConnection], seconds: float) -> None:
        if self._open(held):
            return
        deadline = time.monotonic() + seconds
        waiter: Waiter | None = None
        try:
            while True:
                if waiter is None:
                    waiter = Waiter()
                    self._line.append(waiter)  # first: what is given back from now on is ours
                if self._pick(held) or self._open(held):
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AllInUse
                if waiter.bell.acquire(timeout=min(left, LOOK)):
                    if waiter.gift:
                        held.append(waiter.gift.pop())
                        return
                    waiter = None
        finally:
            if waiter is not None:
                with suppress(ValueError):
                    self._line.remove(waiter)
                self.take_back(waiter.gift, sound=True)

    def _open(self, held: list[OwnConnection]) -> bool:
        """Open a connection if there may be one more: if our permit is among the first."""
        permit, now = Permit(), time.monotonic()
        self._permits.append(permit)
        try:
            for each in list(self._permits):
                if not each.is_taken(now):
                    self._free(each)
            if permit not in self._permits[: self._most]:
                return False
            raw = self._connect()
            permit.raw = ref(raw)
            held.append(raw)
            return True
        finally:
            if permit.raw is None:
                self._free(permit)

    def _free(self, permit: Permit) -> None:
        with suppress(ValueError):  # another thread has seen it too
            self._permits.remove(permit)
