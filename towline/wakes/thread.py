"""The thread a wake listens in: started once, poked, stopped; a forked child has none of it."""

from __future__ import annotations

import os
import random
import select
import threading
import time
from collections.abc import Callable

STOP_TIMEOUT = 5.0  # seconds for the thread to end; one that connects may take longer
FINEST_POLL = 0.001  # below this poll() is too coarse
FIRST, LONGEST = 0.1, 5.0  # seconds between two tries to reach a server


class WakeThread:
    """A daemon thread that waits on descriptors, and on a pipe through which it is poked."""

    def __init__(self, name: str) -> None:
        self._what = name
        self._name = f"towline {name}"
        self._away = False
        self.on_change: Callable[[str, str], None] | None = None
        self._pid = os.getpid()
        self._thread: threading.Thread | None = None
        self._pipe: tuple[int, int] | None = None
        self._mutex = threading.Lock()  # the pipe is not closed while a thread writes to it
        self.stopping = False

    @property
    def running(self) -> bool:
        """Whether it was started in this process, not stopped, and has not ended by itself."""
        thread = self._thread
        return thread is not None and self._pid == os.getpid() and thread.is_alive()

    def start(self, run: Callable[[], None]) -> None:
        """Call `run` in the thread, until it returns. It must when `stopping` is set."""
        if not self.ensure(run):
            raise RuntimeError(f"{self._name} was started before, and has not ended")

    def ensure(self, run: Callable[[], None]) -> bool:
        """Start unless it is started; say whether that was necessary."""
        if os.getpid() != self._pid:  # a fork took the object along, and left the thread
            self._pid, self._mutex, self._thread = os.getpid(), threading.Lock(), None
        with self._mutex:
            if self._thread is not None:
                return False
            self.stopping = False
            self._pipe = ends = os.pipe()
            for end in ends:
                os.set_blocking(end, False)
            self._thread = threading.Thread(
                target=self._run, args=(run, ends), name=self._name, daemon=True
            )
            self._thread.start()
            return True

    def stop(self) -> None:
        """End the thread. A second call does nothing, nor does one in a forked child."""
        thread = self._thread
        if thread is None or os.getpid() != self._pid:
            return
        self.stopping = True
        self.poke()
        if thread is not threading.current_thread():
            thread.join(STOP_TIMEOUT)
            if not thread.is_alive():
                self._thread = None

    def poke(self) -> None:
        """Let the thread's `wait` return now."""
        with self._mutex:
            if self._pipe is None or os.getpid() != self._pid:
                return
            try:
                os.write(self._pipe[1], b"\0")
            except BlockingIOError:  # full of pokes: it will return
                pass

    def wait(self, seconds: float | None, descriptor: int | None = None) -> bool:
        """In the thread: wait until the descriptor has something to read (True), or for a poke or
        the end of the time (False)."""
        poll = select.poll()
        poll.register(self.descriptor, select.POLLIN)
        if descriptor is not None:
            poll.register(descriptor, select.POLLIN)
        if seconds is not None and 0 < seconds < FINEST_POLL:
            time.sleep(seconds)
            seconds = 0
        ready = [which for which, _ in poll.poll(None if seconds is None else seconds * 1000)]
        if self.descriptor in ready:
            self.clear()
        return descriptor in ready

    def pause(self, seconds: float) -> None:
        """In the thread: wait the whole time in spite of pokes, unless it is to stop."""
        until = time.monotonic() + seconds
        while not self.stopping and (left := until - time.monotonic()) > 0:
            self.wait(left)

    def lost(self) -> bool:
        """In the thread: its server is away. True the first time, for a line about it."""
        first, self._away = not self._away and not self.stopping, True
        if first and self.on_change is not None:
            self.on_change(self._what, "lost")
        return first

    def restored(self) -> None:
        """In the thread: its server can be heard."""
        away, self._away = self._away, False
        if away and self.on_change is not None:
            self.on_change(self._what, "restored")

    @property
    def descriptor(self) -> int:
        """In the thread: what has something to read once poked, for waiting in another way."""
        assert self._pipe is not None
        return self._pipe[0]

    def clear(self) -> None:
        """In the thread: forget the pokes there were."""
        try:
            os.read(self.descriptor, 4096)
        except BlockingIOError:
            pass

    def _run(self, run: Callable[[], None], ends: tuple[int, int]) -> None:
        try:
            run()
        finally:
            with self._mutex:
                self._pipe = None
                for end in ends:
                    os.close(end)


class BackOff:
    """How long to wait before the next try to reach a server: longer each time, never in step."""

    def __init__(self, longest: float = LONGEST) -> None:
        self._longest = longest
        self.reset()

    def reset(self) -> None:
        self._next = FIRST

    def __call__(self) -> float:
        seconds, self._next = self._next, min(self._next * 2, self._longest)
        return seconds * random.uniform(0.5, 1.0)
