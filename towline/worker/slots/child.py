"""What runs in a process of `run_in="process"`: its own app, and one attempt after another.

Handlers run in the main thread. Another thread listens to the worker, so that a stop is heard
while a handler runs, and so that this process ends when the worker does.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from ...model import Ending, storable
from ..attempt import Attempt, describe
from .line import begin_lines
from .locate import load
from .protocol import (
    Begun,
    Broken,
    Ended,
    Exit,
    Garbled,
    Load,
    Order,
    Ready,
    Report,
    Run,
    Stop,
    Wire,
)

if TYPE_CHECKING:
    from ...app import Towline
    from ...task import Task

PR_SET_PDEATHSIG = 1
ORPHANED = 70  # exit status when the worker is gone
FIRST_TO_GO = 500  # the kernel's measure of whom to kill when memory runs out
REPORT = 0.1  # seconds between two reports of progress
# On Linux what can be written to counts: the address space holds what threads and libraries only
# reserve, often more than all that is used.
MEMORY = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
RESERVE = 32 << 20  # bytes beyond the limit, for saying how a handler ended that took all


def main(fileno: int) -> None:
    """Serve the worker at the other end of this socket until it says Exit."""
    _die_with_the_worker()
    _be_first_to_go()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Meant for the worker, which decides. Not SIG_IGN: programs a handler starts inherit that.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)
    os.set_inheritable(fileno, False)
    wire: Wire[Order] = Wire(socket.socket(fileno=fileno), Order)
    os.register_at_fork(after_in_child=wire.forget)  # or nobody saw that this process has died
    Child(wire).serve()


class Remote(Attempt):
    """An attempt that the worker has begun, and whose progress it is told as it comes."""

    __slots__ = ("_latest", "_on_report", "_started_at")

    def __init__(
        self, app: Towline, task: Task[..., Any], run: Run, on_report: Callable[[], None]
    ) -> None:
        self._on_report = on_report
        self._latest: tuple[float | None, str | None] | None = None
        self._started_at = run.started_at
        super().__init__(app, task, run.held, run.blockers)
        self.begin()

    @property
    def started_at(self) -> int | None:
        return self._started_at

    @property
    def report(self) -> tuple[float | None, str | None] | None:
        return self._latest

    @report.setter
    def report(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, latest: tuple[float | None, str | None] | None
    ) -> None:
        self._latest = latest
        if latest is not None:
            self._on_report()


class Child:
    """The process: what it has been given, and what it says about it."""

    def __init__(self, wire: Wire[Order]) -> None:
        self._wire = wire
        self._app: Towline | None = None
        self._line: SimpleQueue[Attempt | None] = SimpleQueue()
        self._mutex = threading.Lock()  # a report is never sent behind the end of its attempt
        self._current: Attempt | None = None
        self._news = threading.Event()
        self._reporter: threading.Thread | None = None
        self._runner = asyncio.Runner()
        self._memory = Memory()

    def serve(self) -> None:
        order = self._wire.receive()
        if not isinstance(order, Load):
            return
        try:
            threading.Thread(target=self._listen, name="towline-listen", daemon=True).start()
        except RuntimeError as error:
            self._wire.send(Broken(f"{error}, in a new process", passing=True))
            return
        try:
            self._memory.limit(order.memory_limit)
            self._app = app = load(order)
            begin_lines(self._wire.send, order.levels)
            self._memory.note()
        except BaseException as error:
            self._wire.send(Broken(storable(describe(error)) or ""))
            return
        self._wire.send(Ready())
        while (attempt := self._line.get()) is not None:
            ending = self._run(attempt)
            self._memory.loosen()
            _flush()
            self._end(attempt, ending)
            del attempt, ending
            self._memory.tighten()
        self._runner.close()
        app.close()

    # ---- the worker's orders

    def _listen(self) -> None:
        try:
            while (order := self._wire.receive()) is not None:
                if isinstance(order, Run):
                    self._take(order)
                elif isinstance(order, Stop):
                    self._stop(order)
                elif isinstance(order, Exit):
                    self._line.put(None)
        except Garbled as error:
            self._wire.send(Broken(str(error)))
        finally:
            os._exit(ORPHANED)  # also when listening fails: nobody would hear the worker

    def _take(self, order: Run) -> None:
        """Here and not in the main thread, so that a Stop right behind it finds the attempt."""
        assert self._app is not None, "a worker waits for Ready"
        task = self._app.registry.get(order.held.task)
        if task is None:
            where = f"no task named {order.held.task} is registered when the app is imported"
            self._wire.send(Broken(f"{where}: define it at module level, or include it there"))
            return
        attempt = Remote(self._app, task, order, self._report)
        with self._mutex:
            self._current = attempt
        self._wire.send(Begun())
        self._line.put(attempt)

    def _stop(self, order: Stop) -> None:
        with self._mutex:
            attempt = self._current
        if attempt is not None and attempt.key == (order.job_id, order.attempt):
            attempt.tell(order.why)
            if (slot := attempt.slot) is not None:
                self._runner.get_loop().call_soon_threadsafe(slot.cancel)

    # ---- attempts

    def _run(self, attempt: Attempt) -> Ending | None:
        try:
            context = contextvars.copy_context()
            if inspect.iscoroutinefunction(attempt.task.function):
                return self._runner.run(_awaited(attempt), context=context)
            return context.run(attempt.run)
        except MemoryError:  # no room even to describe it
            self._memory.loosen()
        return attempt.failed(MemoryError("the process has no memory left"))

    def _end(self, attempt: Attempt, ending: Ending | None) -> None:
        worn = self._memory.is_worn()
        with self._mutex:
            self._current = None
            try:
                self._wire.send(_ended(ending, _report_of(attempt), worn))
            except OSError:
                raise  # the worker is gone
            except Exception as error:
                # Not told what it is, the worker would take it for the death of this process.
                self._wire.send(_ended(attempt.failed(error), None, worn))

    # ---- progress

    def _report(self) -> None:
        self._news.set()
        if self._reporter is None:
            reporter = threading.Thread(
                target=self._tell_reports, name="towline-report", daemon=True
            )
            try:
                reporter.start()
            except RuntimeError:
                return  # no room for a thread: the last one is told with the end
            self._reporter = reporter

    def _tell_reports(self) -> None:
        """A thread of its own: a handler that reports a million times a second is not held up."""
        while self._news.wait():
            self._news.clear()
            with self._mutex:
                report = None if self._current is None else _report_of(self._current)
                if report is not None:
                    self._wire.send(report)
            time.sleep(REPORT)


async def _awaited(attempt: Attempt) -> Ending | None:
    attempt.slot = asyncio.current_task()
    if attempt.stop.is_set():
        attempt.slot.cancel()
    return await attempt.arun()


def _ended(ending: Ending | None, report: Report | None, worn: bool) -> Ended:
    frame = Ended(report=report, worn=worn)
    if ending is not None:
        frame.outcome = ending.outcome
        frame.output, frame.error, frame.error_type = ending.output, ending.error, ending.error_type
        frame.delay, frame.started, frame.next = ending.delay, ending.started, ending.next
    return frame


def _report_of(attempt: Attempt) -> Report | None:
    if attempt.report is None:
        return None
    fraction, text = attempt.report
    return Report(fraction, storable(text))


def _flush() -> None:
    """What a handler printed is seen now, and not lost when this process is killed later."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass


# ---- what the kernel is told


def _die_with_the_worker() -> None:
    """On Linux the kernel sees to it, also while a handler holds the interpreter; elsewhere only
    the listening thread does."""
    if sys.platform == "linux":
        import ctypes

        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        except (OSError, AttributeError):
            pass


def _be_first_to_go() -> None:
    """When memory runs out the kernel should take this process, not the worker or a database."""
    score = Path("/proc/self/oom_score_adj")
    try:
        if int(score.read_text()) < FIRST_TO_GO:
            score.write_text(str(FIRST_TO_GO))
    except (OSError, ValueError):
        pass


class Memory:
    """How much this process may have, and whether its handlers leave it too little."""

    def __init__(self) -> None:
        self._limit: int | None = None
        self._most = 0
        self._before = 0

    def limit(self, size: int | None) -> None:
        """Let requests for more fail."""
        if size is None:
            return
        most = resource.getrlimit(MEMORY)[1]
        self._limit = size if most == resource.RLIM_INFINITY else min(size, most)
        self._most = size + RESERVE if most == resource.RLIM_INFINITY else most
        self.tighten()

    def tighten(self) -> None:
        """A handler comes."""
        if self._limit is not None:
            resource.setrlimit(MEMORY, (self._limit, self._most))

    def loosen(self) -> None:
        """The handler has ended, perhaps because it took all there was: say so with the rest."""
        if self._limit is not None:
            resource.setrlimit(MEMORY, (self._most, self._most))

    def note(self) -> None:
        """What is there now, the app needs."""
        self._before = _memory()

    def is_worn(self) -> bool:
        """Whether more than half of what handlers may have is not free between them: the next
        would fail for what another left behind. Known on Linux only."""
        if self._limit is None or 2 * _memory() <= self._limit + self._before:
            return False
        gc.collect()
        return 2 * _memory() > self._limit + self._before


def _memory() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    except OSError:
        return 0
