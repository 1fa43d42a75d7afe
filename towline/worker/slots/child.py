"""A process of `run_in="process"`, from inside: its own app, and one attempt after another.

Handlers run in the main thread, each when its token comes. Another thread listens to the worker: it
lines up what is sent ahead, hears a stop while a handler runs, and ends this process when the
worker has gone.
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
from pathlib import Path
from queue import SimpleQueue

from ...errors import InvalidTask
from ...model import storable
from ...records import Ending
from ..attempt import Attempt
from ..ending import describe, of_error
from .locate import load
from .log_lines import send_log_lines
from .protocol import (
    Begun,
    Broken,
    Channel,
    Ended,
    Garbled,
    Load,
    Order,
    Ready,
    Report,
    Run,
    Stop,
    packed,
)
from .tokens import ANSWER, EXIT, Tokens

PR_SET_PDEATHSIG = 1
ORPHANED = 70  # exit status when the worker is gone
FIRST_TO_GO = 500  # the kernel's measure of whom to kill when memory runs out
PROGRESS_INTERVAL = 0.1  # seconds between two reports of progress
# On Linux what can be written to counts: the address space holds what threads and libraries only
# reserve, often more than all that is used.
MEMORY_LIMIT = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
MEMORY_RESERVE = 32 << 20  # bytes beyond the limit, for saying how a handler ended that took all


def main(channel_end: int, tokens_end: int) -> None:
    """Serve the worker at the other end of this socket until it says Exit."""
    _die_with_the_worker()
    _be_first_to_go()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Meant for the worker, which decides. Not SIG_IGN: programs a handler starts inherit that.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)
    for end in (channel_end, tokens_end):
        os.set_inheritable(end, False)
    channel: Channel[Order] = Channel(socket.socket(fileno=channel_end), Order)
    tokens = Tokens(tokens_end)
    os.register_at_fork(after_in_child=channel.forget)  # or its death would go unseen
    os.register_at_fork(after_in_child=tokens.close)
    Child(channel, tokens).serve()


class Child:
    """The process: what it has been given, and what it says about it."""

    def __init__(self, channel: Channel[Order], tokens: Tokens) -> None:
        self._channel = channel
        self._tokens = tokens
        self._line: SimpleQueue[Run] = SimpleQueue()
        self._mutex = threading.Lock()  # a report is never sent behind the end of its attempt
        self._current: Attempt | None = None
        self._last_stop: Stop | None = None
        self._report_due = False
        self._runner = asyncio.Runner()

    def serve(self) -> None:
        orders = self._channel.receive()
        if not orders or not isinstance(order := orders[0], Load):
            return
        try:
            threading.Thread(target=self._listen, name="towline-listen", daemon=True).start()
        except RuntimeError as error:
            self._channel.send(Broken(f"{error}, in a new process", passing=True))
            return
        try:
            self._memory = Memory(order.memory_limit)
            self._app = load(order)
            send_log_lines(self._channel.send, order.levels)
            self._memory.note()
        except BaseException as error:
            self._channel.send(Broken(storable(describe(error)) or ""))
            return
        self._channel.send(Ready())
        self._serve_tokens()
        self._runner.close()
        if self._app.tracing is not None:
            self._app.tracing.flush()
        self._app.close()

    # ---- the worker's orders

    def _listen(self) -> None:
        try:
            while orders := self._channel.receive():
                for order in orders:
                    if isinstance(order, Run):
                        self._line.put(order)
                    elif isinstance(order, Stop):
                        self._stop(order)
        except Garbled as error:
            self._channel.send(Broken(str(error)))
        finally:
            os._exit(ORPHANED)  # also when listening fails: the worker would go unheard

    def _stop(self, order: Stop) -> None:
        with self._mutex:
            self._last_stop = order
            attempt = self._current
        if attempt is not None and attempt.key == (order.job_id, order.attempt):
            attempt.ask_to_stop(order.why)
            if (slot := attempt.slot) is not None:
                self._runner.get_loop().call_soon_threadsafe(slot.cancel)

    # ---- attempts

    def _serve_tokens(self) -> None:
        """Run what tokens say until the last, or until this process should not run any more.

        What is to be said of an attempt that ended goes with the beginning of the next, if that is
        there already: one message for each, and none behind which another handler has begun."""
        said, worn = b"", False
        try:
            while not worn:
                number = self._tokens.take()
                if number is None:
                    if said:
                        self._channel.send_packed(said)
                        said = b""
                    number = self._tokens.wait()
                if number == EXIT:
                    break
                if number == ANSWER:
                    said += packed(Ready())
                    continue
                attempt = self._begin(number, said)
                said = b""
                self._memory.tighten()
                ending = self._run(attempt)
                ended = time.monotonic()
                self._memory.loosen()
                _flush()
                worn = self._memory.is_worn()
                said = self._end(attempt, ending, ended, worn)
                del attempt, ending
        except InvalidTask as error:
            said += packed(Broken(str(error)))
        finally:
            if said:
                self._channel.send_packed(said)

    def _begin(self, number: int, said: bytes) -> Attempt:
        """The attempt of this number, and from now on it counts."""
        while (order := self._line.get()).number != number:
            pass  # it was taken back
        task = self._app.registry.get(order.held.task)
        if task is None:
            where = f"no task named {order.held.task} is registered when the app is imported"
            raise InvalidTask(f"{where}: define it at module level, or include it there")
        attempt = Attempt(
            self._app, task, order.held, order.blockers,
            worker=order.worker, on_progress=self._report_soon, claimed=order.claimed,
            elsewhere=True,
        )  # fmt: skip
        if self._app.tracing is not None:
            attempt.span = self._app.tracing.joined(order.trace)
        attempt.begin()
        with self._mutex:
            self._current = attempt
            stop = self._last_stop
        if stop is not None and (stop.job_id, stop.attempt) == attempt.key:
            attempt.ask_to_stop(stop.why)
        assert attempt.begun is not None, "nobody withdraws it here"
        self._channel.send_packed(said + packed(Begun(number, attempt.begun)))
        return attempt

    def _run(self, attempt: Attempt) -> Ending | None:
        try:
            context = contextvars.copy_context()
            if inspect.iscoroutinefunction(attempt.task.function):
                return self._await(attempt, context)
            return context.run(attempt.run)
        except MemoryError:  # no room even to describe it
            self._memory.loosen()
        return of_error(attempt, MemoryError("the process has no memory left"))

    def _await(self, attempt: Attempt, context: contextvars.Context) -> Ending | None:
        """Run it to its end, also when a handler stops the loop, or its task lets an exit out."""
        loop = self._runner.get_loop()
        running = loop.create_task(_awaited(attempt), context=context)
        running.add_done_callback(lambda task: loop.stop())
        while not running.done():
            try:
                loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                pass  # who awaits the task had it; of others' tasks it is no fault of this one
        return running.result()

    def _end(self, attempt: Attempt, ending: Ending | None, at: float, worn: bool) -> bytes:
        """It has ended: what is to be said of that."""
        with self._mutex:
            self._current = None
        try:
            return packed(*_report_of(attempt), Ended.by(attempt, ending, at, worn))
        except Exception as error:
            # Without an answer the worker would take it for the death of this process.
            return packed(Ended.by(attempt, of_error(attempt, error), at, worn))

    # ---- progress

    def _report_soon(self) -> None:
        """From another thread: a handler that reports a million times a second is not held up."""
        if not self._report_due:
            self._report_due = True
            timer = threading.Timer(PROGRESS_INTERVAL, self._report_now)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:  # no room for a thread: the last one is sent with the end
                self._report_due = False

    def _report_now(self) -> None:
        with self._mutex:
            self._report_due = False
            if self._current is not None:
                self._channel.send(*_report_of(self._current))


def _report_of(attempt: Attempt) -> list[Report]:
    if attempt.progress is None:
        return []
    fraction, text = attempt.progress
    return [Report(fraction, storable(text))]


async def _awaited(attempt: Attempt) -> Ending | None:
    attempt.slot = asyncio.current_task()
    if attempt.stop.is_set():
        attempt.slot.cancel()
    return await attempt.arun()


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

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._before = 0
        if limit is not None:
            self._most = resource.getrlimit(MEMORY_LIMIT)[1]
            if self._most == resource.RLIM_INFINITY:
                self._most = limit + MEMORY_RESERVE
            else:
                self._limit = min(limit, self._most)
            self.tighten()

    def tighten(self) -> None:
        """A handler comes: let requests for more fail."""
        if self._limit is not None:
            resource.setrlimit(MEMORY_LIMIT, (self._limit, self._most))

    def loosen(self) -> None:
        """The handler has ended, perhaps because it took all there was: say so with the rest."""
        if self._limit is not None:
            resource.setrlimit(MEMORY_LIMIT, (self._most, self._most))

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
