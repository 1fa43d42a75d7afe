"""Handlers with `run_in="process"`: processes of their own, which can be killed.

Each slot is a thread that keeps one process, kept warm for the next attempt:

    starting ─► free ⇄ running ─► gone
        └─────────┴───────────────► gone

A process is gone when it was killed, died, has run as many attempts as it may, keeps too much of
its memory limit, or the slots are closed. Another takes its place when there is an attempt for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from ...errors import InvalidTask
from ...model import Ending, Outcome
from ..attempt import Attempt
from ..ending import crashed, never_begun, of_error, released, timed_out
from ..settings import Settings
from . import Done, hand_back
from .locate import location_of
from .log_lines import levels
from .protocol import Begun, Broken, Ended, Garbled, Ready, Report, Run, Stop
from .spawned import SpawnedProcess

if TYPE_CHECKING:
    from ...app import Towline

log = logging.getLogger("towline.worker")

HANDLER_GRACE = 0.5  # seconds a handler has to stop by itself when the worker stops
LOAD_TIMEOUT = 120.0  # seconds an app may take to be imported
CLOSE_TIMEOUT = 10.0  # seconds in which all processes end, those that were killed too


class ProcessSlots:
    """Processes begin when they are needed, as many as attempts may run at a time.

    Attempts wait in one line, and begin when a process that has loaded the app takes them: the
    time of a timeout is the handler's own. A handler that is too late or was cancelled is killed
    at once; when the worker stops it is asked first. What a handler started in its turn is killed
    with it, as long as it is in the same process group.
    """

    def __init__(self, app: Towline, settings: Settings, done: Done) -> None:
        self.app = app
        self.settings = settings
        self._done = done
        self._line: deque[Attempt] = deque()
        self._slots: list[ProcessSlot] = []
        self.mutex = threading.Lock()  # of the line, and of what each slot has
        self.work = threading.Condition(self.mutex)  # something is in the line
        self.closing = False

    # ---- what the pump calls

    def start(self, attempt: Attempt) -> None:
        with self.mutex:
            self._open_slots(len(self._line) + 1)
            self._line.append(attempt)
            self.work.notify()

    def interrupt(self, attempt: Attempt) -> None:
        slot: ProcessSlot | None = attempt.slot
        if slot is None:
            return
        if attempt.stopped_for is Outcome.RELEASED:
            # A thread of its own: the pump does not wait.
            asking = threading.Thread(target=slot.ask_then_kill, args=(attempt,), daemon=True)
            try:
                asking.start()
                return
            except RuntimeError:  # no room for one
                pass
        slot.kill(attempt)

    def abandon(self, attempt: Attempt) -> None:
        attempt.abandoned = True
        if attempt.slot is not None:
            attempt.slot.kill(attempt)

    def close(self) -> None:
        """Return when every process has ended, or will not by any means."""
        with self.mutex:
            self.closing = True
            self.work.notify_all()
            slots = list(self._slots)
            for slot in slots:
                slot.hurry()
        deadline = time.monotonic() + CLOSE_TIMEOUT
        for slot in slots:
            slot.thread.join(max(deadline - time.monotonic(), 0))

    # ---- what the slots call

    def take(self, slot: ProcessSlot) -> Attempt | None:
        """The next attempt, which begins now; None when the slot is not needed any more."""
        with self.mutex:
            while not self.closing:
                if self._line and not slot.is_alive():
                    return None  # it died while it was free: no attempt's fault
                while self._line:
                    attempt = self._line.popleft()
                    slot.attempt, attempt.slot = attempt, slot
                    if attempt.begin():
                        return attempt
                    slot.attempt = None
                self.work.wait()
            return None

    def refuse(self, error: Exception) -> None:
        """No process can be started. The attempt that needed it goes back with nothing used if
        there is no room for one just now; else it fails, and says why."""
        with self.mutex:
            if not self._line or self.closing:
                return
            attempt = self._line.popleft()
        if isinstance(error, OSError | MemoryError):  # no process, descriptor or memory left
            log.warning("no process for %s just now, it is handed back: %s", attempt, error)
            hand_back([attempt], self._done)
        elif attempt.begin():
            log.error("no process for %s: %s", attempt, error)
            self._done(attempt, of_error(attempt, error))

    def ended(self, attempt: Attempt, ending: Ending | None) -> None:
        if not attempt.abandoned:
            self._done(attempt, ending)

    def left(self, slot: ProcessSlot) -> None:
        """This slot is no more; let another take its place if there is something to do."""
        back: list[Attempt] = []
        with self.mutex:
            self._slots.remove(slot)
            try:
                self._open_slots(len(self._line))
            except RuntimeError as error:
                log.warning("no process for what waits just now, it is handed back: %s", error)
                back = list(self._line)
                self._line.clear()
            self.work.notify()  # it may have been woken for what it did not take
        hand_back(back, self._done)

    def _open_slots(self, needed: int) -> None:
        """Have as many free as are needed; RuntimeError when there is not one at all. One more that
        cannot begin does not matter as long as there are others."""
        needed -= sum(slot.attempt is None for slot in self._slots)
        room = 0 if self.closing else self.settings.concurrency - len(self._slots)
        for _ in range(min(needed, room)):
            slot = ProcessSlot(self)
            try:
                slot.thread.start()
            except RuntimeError:
                if not self._slots:
                    raise
                return
            self._slots.append(slot)


class ProcessSlot:
    """One process and the thread that keeps it. It is the thread that starts the process: the
    kernel ends the process when that thread does."""

    def __init__(self, owner: ProcessSlots) -> None:
        self._owner = owner
        self._process: SpawnedProcess | None = None  # as long as another thread may kill it
        self._ready = False
        self._killed = False
        self.attempt: Attempt | None = None
        self.thread = threading.Thread(target=self._serve, name="towline-process", daemon=True)

    # ---- what other threads call

    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def kill(self, attempt: Attempt) -> None:
        """Kill the process, if it is still this attempt that runs there."""
        with self._owner.mutex:
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
                process.channel.send(Stop(*attempt.key, attempt.stopped_for))
            except OSError:
                pass  # it has just died
        time.sleep(HANDLER_GRACE)
        self.kill(attempt)

    def _kill(self) -> None:
        if self._process is not None:
            self._killed = True
            self._process.kill()

    # ---- the thread

    def _serve(self) -> None:
        try:
            try:
                process = self._start()
            except InvalidTask as error:
                self._owner.refuse(error.with_traceback(None))  # its text says all
            except Exception as error:
                self._owner.refuse(error)
            else:
                try:
                    self._run_attempts(process)
                finally:
                    self._end(process)
        except Exception as error:
            log.exception("a process slot ended by an error")
            if (attempt := self.attempt) is not None:
                self._owner.ended(attempt, of_error(attempt, error))
        finally:
            self._owner.left(self)

    def _start(self) -> SpawnedProcess:
        owner = self._owner
        load = location_of(owner.app)
        load.memory_limit, load.levels = owner.settings.memory_limit, levels()
        process = SpawnedProcess(load)
        with owner.mutex:
            self._process = process
            if owner.closing:
                self._kill()
        answer = process.receive(LOAD_TIMEOUT)
        with owner.mutex:
            self._ready = isinstance(answer, Ready)
        if self._ready:
            return process
        why = self._end(process)
        if isinstance(answer, Broken):
            why = answer.error
            if answer.passing:
                raise OSError(why)
        raise InvalidTask(f"the process for this task could not load its app: {why}")

    def _run_attempts(self, process: SpawnedProcess) -> None:
        ran = 0
        while ran != self._owner.settings.max_tasks_per_child:
            attempt = self._owner.take(self)
            if attempt is None or not self._run(process, attempt):
                return
            ran += 1

    def _run(self, process: SpawnedProcess, attempt: Attempt) -> bool:
        """Run it there; return whether the process can take another one."""
        try:
            held, blockers = attempt.held, list(attempt.blockers)
            process.channel.send(Run(held, blockers, attempt.worker, attempt.started_at))
        except OSError:
            pass  # it has just died, as will be seen
        begun = False
        answer: object
        try:
            while isinstance(answer := process.receive(), Begun | Report):
                begun = True
                if isinstance(answer, Report):
                    attempt.report(answer.fraction, answer.text)
        except Garbled as error:  # it lives, and may have done its work
            answer = error
        why = self._end(process) if answer is None else ""
        killed = self._free()
        ending: Ending | None = None
        if isinstance(answer, Ended):
            if (ending := answer.ending) is not None:  # with what only the worker knows
                ending.held, ending.started_at = attempt.held, attempt.started_at
        elif isinstance(answer, Garbled):
            ending = of_error(attempt, answer)
        elif isinstance(answer, Broken):  # the next process may have loaded what is missing
            ending = of_error(attempt, InvalidTask(answer.error))
        elif not killed:
            log.warning("%s: %s", attempt, why)
            ending = crashed(attempt, why) if begun else never_begun(attempt)
        elif attempt.stopped_for is Outcome.TIMEOUT:
            ending = timed_out(attempt)
        elif attempt.stopped_for is Outcome.RELEASED:
            ending = released(attempt)
        self._owner.ended(attempt, ending)  # None also when it is not this worker's any more
        return isinstance(answer, Ended) and not (killed or answer.worn)

    def _free(self) -> bool:
        """The attempt is over; say whether the process was killed because of it."""
        with self._owner.mutex:
            self.attempt = None
            return self._killed

    def _end(self, process: SpawnedProcess) -> str:
        """Let it end, and see that it does. From here on no other thread may kill it: its number
        can be another process's."""
        with self._owner.mutex:
            self._process = None
        return process.end()
