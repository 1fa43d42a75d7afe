"""Handlers with `run_in="process"`: processes of their own, which can be killed.

Each seat is a thread that keeps one process, kept warm for the next attempt:

    starting ─► free ⇄ running ─► gone
        └─────────┴───────────────► gone

A process is gone when it was killed, died, has run as many attempts as it may, keeps too much of
its memory limit, or the slots are closed. Another takes its place when there is an attempt for it.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from ...errors import InvalidTask
from ...model import Ending, Outcome
from ..attempt import Attempt
from . import Done
from .line import Line, levels
from .locate import place_of, search_path
from .protocol import (
    Answer,
    Begun,
    Broken,
    Ended,
    Exit,
    Garbled,
    Load,
    Ready,
    Report,
    Run,
    Stop,
    Wire,
)

if TYPE_CHECKING:
    from ...app import Towline

log = logging.getLogger("towline.worker")

GRACE = 0.5  # seconds a handler has to stop by itself when the worker stops
LONGEST_START = 120.0  # seconds an app may take to be imported
PATIENCE = 2.0  # seconds a process has to end when it was asked
LONGEST_END = 10.0  # seconds that all have, those that were killed too


class ProcessSlots:
    """Processes begin when they are needed, as many as attempts may run at a time.

    Attempts wait in one line, and begin when a process that has loaded the app takes them: the
    time of a timeout is the handler's own. A handler that is too late or was cancelled is killed
    at once; when the worker stops it is asked first. What a handler started in its turn is killed
    with it, as long as it is in the same process group.
    """

    def __init__(
        self,
        app: Towline,
        limit: int,
        done: Done,
        max_tasks_per_child: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        self.app = app
        self.tasks_per_child = max_tasks_per_child
        self.memory_limit = memory_limit
        self._limit = limit
        self._done = done
        self._line: deque[Attempt] = deque()
        self._seats: list[Seat] = []
        self.mutex = threading.Lock()  # of the line, and of what each seat has
        self.work = threading.Condition(self.mutex)  # something is in the line
        self.over = threading.Condition(self.mutex)  # an attempt has ended
        self.closing = False

    # ---- what the pump calls

    def start(self, attempt: Attempt) -> None:
        with self.mutex:
            self._line.append(attempt)
            try:
                self._open_seats()
            except RuntimeError:
                self._line.remove(attempt)
                raise
            self.work.notify()

    def interrupt(self, attempt: Attempt) -> None:
        seat = attempt.slot
        if not isinstance(seat, Seat):
            return
        if attempt.stopped_for is Outcome.RELEASED:
            # A thread of its own: the pump waits for nobody.
            asking = threading.Thread(target=seat.ask_then_kill, args=(attempt,), daemon=True)
            try:
                asking.start()
            except RuntimeError:  # no room for one
                seat.kill(attempt)
        else:
            seat.kill(attempt)

    def abandon(self, attempt: Attempt) -> None:
        attempt.abandoned = True
        if isinstance(attempt.slot, Seat):
            attempt.slot.kill(attempt)

    def close(self) -> None:
        """Return when every process has ended, or will not by any means."""
        with self.mutex:
            self.closing = True
            self.work.notify_all()
            seats = list(self._seats)
            for seat in seats:
                seat.hurry()
        deadline = time.monotonic() + LONGEST_END
        for seat in seats:
            seat.thread.join(max(deadline - time.monotonic(), 0))

    # ---- what the seats call

    def take(self, seat: Seat) -> Attempt | None:
        """The next attempt, which begins now; None when the seat is not needed any more."""
        with self.mutex:
            while not self.closing:
                if self._line and not seat.is_alive():
                    return None  # it died while it was free: no attempt's fault
                while self._line:
                    attempt = self._line.popleft()
                    seat.attempt, attempt.slot = attempt, seat
                    if attempt.begin():
                        return attempt
                    seat.attempt = None
                self.work.wait()
            return None

    def refuse(self, error: Exception) -> None:
        """No process can be started: the attempt that needed it fails, and says why."""
        with self.mutex:
            attempt = self._line.popleft() if self._line and not self.closing else None
        if attempt is not None and attempt.begin():
            log.error("no process for %s: %s", attempt, error)
            self._done(attempt, attempt.failed(error))

    def put_off(self, error: Exception) -> None:
        """There is no room for another process: what waited for it goes back, nothing used."""
        with self.mutex:
            attempt = self._line.popleft() if self._line and not self.closing else None
        if attempt is not None and attempt.withdraw():
            log.warning("no process for %s just now, it is handed back: %s", attempt, error)
            self._done(attempt, attempt.put_off())

    def ended(self, attempt: Attempt, ending: Ending | None) -> None:
        if not attempt.abandoned:
            self._done(attempt, ending)

    def left(self, seat: Seat) -> None:
        """This seat is no more; let another take its place if there is something to do."""
        back: list[Attempt] = []
        with self.mutex:
            self._seats.remove(seat)
            try:
                self._open_seats()
            except RuntimeError as error:
                log.warning("no process for what waits just now, it is handed back: %s", error)
                back = list(self._line)
                self._line.clear()
            self.work.notify()  # it may have been woken for what it did not take
        for attempt in back:
            if attempt.withdraw():
                self._done(attempt, attempt.put_off())

    def _open_seats(self) -> None:
        """As many as are needed; RuntimeError when there is not one. One more that cannot begin
        does not matter as long as there are others."""
        free = sum(seat.attempt is None for seat in self._seats)
        while free < len(self._line) and len(self._seats) < self._limit and not self.closing:
            seat = Seat(self)
            try:
                seat.thread.start()
            except RuntimeError:
                if not self._seats:
                    raise
                return
            self._seats.append(seat)
            free += 1


class Seat:
    """One process and the thread that keeps it. It is the thread that starts the process: the
    kernel ends the process when that thread does."""

    def __init__(self, slots: ProcessSlots) -> None:
        self._slots = slots
        self._process: Process | None = None  # as long as others may kill it
        self._ready = False
        self._killed = False
        self.attempt: Attempt | None = None
        self.thread = threading.Thread(target=self._serve, name="towline-process", daemon=True)

    # ---- what others call

    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def kill(self, attempt: Attempt) -> None:
        """Kill the process, if it is still this attempt that runs there."""
        with self._slots.mutex:
            if self.attempt is attempt:
                self._kill()

    def hurry(self) -> None:
        """The slots are closed: kill what is not free. The caller has the mutex."""
        if self.attempt is not None or not self._ready:
            self._kill()

    def ask_then_kill(self, attempt: Attempt) -> None:
        process = self._process
        if process is not None and attempt.stopped_for is not None:
            try:
                process.wire.send(Stop(*attempt.key, attempt.stopped_for))
            except OSError:
                pass  # it has just died
        with self._slots.mutex:
            self._slots.over.wait_for(lambda: self.attempt is not attempt, GRACE)
        self.kill(attempt)

    def _kill(self) -> None:
        if self._process is not None:
            self._killed = True
            self._process.kill()

    # ---- the thread

    def _serve(self) -> None:
        try:
            if (process := self._started()) is not None:
                try:
                    self._run_attempts(process)
                finally:
                    self._end(process)
        except Exception as error:
            log.exception("a process slot ended by an error")
            if (attempt := self.attempt) is not None:
                self._slots.ended(attempt, attempt.failed(error))
        finally:
            self._slots.left(self)

    def _started(self) -> Process | None:
        try:
            return self._start()
        except InvalidTask as error:
            self._slots.refuse(error.with_traceback(None))  # its text says all
        except (OSError, MemoryError) as error:  # no process, no descriptor, no memory left
            self._slots.put_off(error)
        except Exception as error:
            self._slots.refuse(error)
        return None

    def _start(self) -> Process:
        slots = self._slots
        load = place_of(slots.app, slots.memory_limit)
        load.levels = levels()
        process = Process(load)
        with slots.mutex:
            self._process = process
            if slots.closing:
                self._kill()
        answer = process.receive(LONGEST_START)
        with slots.mutex:
            self._ready = isinstance(answer, Ready)
        if self._ready:
            return process
        why = self._end(process)
        if isinstance(answer, Broken):
            why = answer.error
            if answer.passing:
                raise OSError(why)
        raise InvalidTask(f"the process for this task could not load its app: {why}")

    def _run_attempts(self, process: Process) -> None:
        ran = 0
        while ran != self._slots.tasks_per_child:
            attempt = self._slots.take(self)
            if attempt is None or not self._run(process, attempt):
                return
            ran += 1

    def _run(self, process: Process, attempt: Attempt) -> bool:
        """Whether the process can take another one."""
        try:
            process.wire.send(Run(attempt.held, list(attempt.blockers), attempt.started_at))
        except OSError:
            pass  # it has just died, as will be seen
        begun = False
        try:
            while isinstance(answer := process.receive(), Begun | Report):
                begun = True
                if isinstance(answer, Report):
                    attempt.report = answer.fraction, answer.text
        except Garbled as error:  # it lives, and may have done its work
            self._free()
            self._slots.ended(attempt, attempt.failed(error))
            return False
        if isinstance(answer, Ended):
            killed = self._free()
            self._slots.ended(attempt, _ending(attempt, answer))
            return not (killed or answer.worn)
        if isinstance(answer, Broken):
            self._free()
            self._slots.ended(attempt, attempt.failed(InvalidTask(answer.error)))
            return False  # the next may have loaded what is missing
        why = self._end(process)
        if not self._free():
            log.warning("%s: %s", attempt, why)
            self._slots.ended(attempt, attempt.crashed(why) if begun else attempt.never_begun())
        elif attempt.stopped_for is Outcome.TIMEOUT:
            self._slots.ended(attempt, attempt.timed_out())
        elif attempt.stopped_for is Outcome.RELEASED:
            self._slots.ended(attempt, attempt.released())
        else:
            self._slots.ended(attempt, None)  # it is not this worker's any more
        return False

    def _free(self) -> bool:
        """The attempt is over; say whether the process was killed because of it."""
        with self._slots.mutex:
            self.attempt = None
            self._slots.over.notify_all()
            return self._killed

    def _end(self, process: Process) -> str:
        """Let it end, and see that it does. From here on nobody else may kill it: its number can
        be another's."""
        with self._slots.mutex:
            self._process = None
        return process.end()


class Process:
    """A spawned process, which never shares memory, locks or connections with this one."""

    def __init__(self, load: Load) -> None:
        path = search_path(load.modules)
        ours, theirs = socket.socketpair()
        code = f"import sys; sys.path[:] = {path!r}; from towline.worker.slots.child import main"
        flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
        try:
            with theirs:
                self._popen = subprocess.Popen(
                    [sys.executable, *flags, "-c", f"{code}; main({theirs.fileno()})"],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    process_group=0,  # so that it and what it starts can be killed together
                )
        except BaseException:
            ours.close()
            raise
        self.wire: Wire[Answer | Line] = Wire(ours, Answer | Line)
        try:
            self.wire.send(load)
        except OSError:
            pass  # it has died already, as will be seen

    def receive(self, timeout: float | None = None) -> Answer | None:
        """What it says; lines that it logs on the way are logged here, as this process does it."""
        while isinstance(answer := self.wire.receive(timeout), Line):
            answer.log()
        return answer

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        if self._popen.returncode is None:
            try:
                os.killpg(self._popen.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # nobody is left of it

    def end(self) -> str:
        """Ask it to end, then make it; return how it ended, in words."""
        deadline = time.monotonic() + PATIENCE
        try:
            self.wire.send(Exit())
            while (left := deadline - time.monotonic()) > 0 and self.receive(left) is not None:
                pass  # its last lines are logged
        except (OSError, Garbled):
            pass
        try:
            status = self._popen.wait(max(deadline - time.monotonic(), 0.1))
            return _in_words(status)
        except subprocess.TimeoutExpired:
            self.kill()
            self._popen.wait()
            return "the process was silent and did not end, so it was killed"
        finally:
            self.wire.close()


def _ending(attempt: Attempt, ended: Ended) -> Ending | None:
    """What the process says, with what only the worker knows."""
    if ended.report is not None:
        attempt.report = ended.report.fraction, ended.report.text
    if ended.outcome is None:
        return None
    return Ending(
        attempt.held, ended.outcome, output=ended.output, error=ended.error,
        error_type=ended.error_type, delay=ended.delay, started_at=attempt.started_at,
        started=ended.started, next=ended.next,
    )  # fmt: skip


def _in_words(status: int) -> str:
    if status >= 0:
        return f"the process ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    hint = ": was there no memory left?" if -status == signal.SIGKILL else ""
    return f"the process ended by signal {-status} ({name}){hint}"
