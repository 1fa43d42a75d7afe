"""One process slot: a thread that keeps a process, and what it has sent there.

Attempts are sent ahead of their time, a few at once while handlers are short; a token for each
says that it may begin (`tokens.py`):

    in the line ⇄ sent ─► begun ─► ended

The process tells how an attempt ended before it begins the next. So of those that were sent one is
running, as far as was heard; the next has perhaps begun, since its token is gone; the tokens of all
others are in the pipe, and those can be taken back at any time, whatever the handler does. When the
process dies they go back to the line with nothing used.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from typing import TYPE_CHECKING

from ...errors import InvalidTask
from ...model import Outcome
from ...records import Ending
from ..attempt import Attempt
from ..ending import crashed, never_begun, of_error, released, timed_out
from .locate import location_of
from .log_lines import levels
from .protocol import Begun, Broken, Ended, Garbled, Ready, Report, Run, Stop
from .spawned import SpawnedProcess
from .tokens import ANSWER

if TYPE_CHECKING:
    from .process import ProcessSlots

log = logging.getLogger("towline.worker")

HANDLER_GRACE = 0.5  # seconds a handler has to stop by itself when the worker stops
LOAD_TIMEOUT = 120.0  # seconds an app may take to be imported


class ProcessSlot:
    """One process and the thread that keeps it. It is the thread that starts the process: the
    kernel ends the process when that thread does."""

    def __init__(self, owner: ProcessSlots) -> None:
        self._owner = owner
        self._process: SpawnedProcess | None = None  # as long as another thread may kill it
        self._ready = False
        self._killed = False
        self._numbers = itertools.count(1)
        self._running: Attempt | None = None  # the one that was heard to have begun
        self.taken: list[Attempt] = []  # about to be sent
        self.sent: dict[int, Attempt] = {}  # and not heard to have ended, in their order
        self.ran = 0
        self.heard_at = 0.0
        self.thread = threading.Thread(target=self._serve, name="towline-process", daemon=True)

    # ---- what other threads call

    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def take_back(self, attempt: Attempt) -> bool:
        """Take back all that has not begun; whether this one is among that."""
        with self._owner.mutex:
            self.take_all_back()
            return attempt.sent_to is not self

    def kill(self, attempt: Attempt) -> None:
        """Kill the process, if it is still this attempt that runs there."""
        with self._owner.mutex:
            if attempt in self.sent.values():
                self._kill_alone(attempt)

    def ask_then_kill(self, attempt: Attempt) -> None:
        process = self._process
        if process is not None and attempt.stopped_for is not None:
            try:
                process.channel.send(Stop(*attempt.key, attempt.stopped_for))
            except OSError:
                pass  # it has just died
        time.sleep(HANDLER_GRACE)
        self.kill(attempt)

    # ---- the caller has the mutex

    @property
    def is_free(self) -> bool:
        return not (self.taken or self.sent)

    def hurry(self) -> None:
        """The slots are closed: kill what is not free."""
        if not self.is_free or not self._ready:
            self._kill()

    def take_all_back(self) -> None:
        """Put what has not begun back into the line."""
        if self._process is not None:
            tokens = self._process.tokens.take_back()
            back = [self.sent.pop(number) for number in tokens if number != ANSWER]
            for attempt in back:
                attempt.sent_to = None
            self._owner.put_back(back)
            if tokens and not self.sent:  # or the thread would wait for what nobody will say
                self._process.tokens.give([ANSWER])

    def _kill_alone(self, attempt: Attempt) -> None:
        """Kill the process because of this attempt, and no other with it. When one behind it has
        begun, it has ended; when the one before it was not heard to have ended, that will be said
        with its beginning, and it is killed then."""
        self.take_all_back()
        if list(self.sent.values()) == [attempt]:
            self._kill()

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
                    self._end()
        except Exception as error:
            log.exception("a process slot ended by an error")
            for attempt in (*self.sent.values(), *self.taken):
                if attempt.begin():
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
        answers = process.receive(LOAD_TIMEOUT)
        answer = answers[0] if answers else None
        with owner.mutex:
            self._ready = isinstance(answer, Ready)
        if self._ready:
            return process
        why = self._end()
        if isinstance(answer, Broken):
            why = answer.error
            if answer.passing:
                raise OSError(why)
        raise InvalidTask(f"the process for this task could not load its app: {why}")

    def _run_attempts(self, process: SpawnedProcess) -> None:
        while self._owner.take(self):
            if self.taken:
                self._send(process)
            if self.sent and not self._hear(process):
                return

    def _send(self, process: SpawnedProcess) -> None:
        """Send what was taken, then the tokens: until those are there, nothing can begin."""
        runs = [
            Run(
                number, attempt.held, list(attempt.blockers), attempt.worker, attempt.claimed,
                self._owner.traced(attempt),
            )
            for attempt, number in zip(self.taken, self._numbers, strict=False)
        ]  # fmt: skip
        try:
            process.channel.send(*runs)
        except OSError:
            pass  # it has just died, as will be seen
        with self._owner.mutex:
            if self._killed:
                self._owner.put_back(self.taken)
            else:
                if not self.sent:
                    self.heard_at = time.monotonic()
                begin = {
                    run.number: attempt
                    for run, attempt in zip(runs, self.taken, strict=True)
                    if attempt.send(self)
                }
                self.sent.update(begin)
                process.tokens.give(begin)
            self.taken = []

    def _hear(self, process: SpawnedProcess) -> bool:
        """Hear how it goes there; return whether the process can go on."""
        if len(self.sent) > 1:
            time.sleep(self._owner.pace.pause(len(self.sent)))
        # Lines that its handler logs are logged here on the way, as those of its attempt.
        span = next(iter(self.sent.values())).span if len(self.sent) == 1 else None
        if span is not None:
            span.enter()
        try:
            answers = process.receive()
        except Garbled as error:  # it lives, and may have done its work
            self._lose(error)
            return False
        finally:
            if span is not None:
                span.leave()
        over: list[tuple[Attempt, Ending | None]] = []
        worn = False
        with self._owner.mutex:
            self.heard_at = time.monotonic()
            for answer in answers:
                if isinstance(answer, Begun):
                    self._begin(self.sent[answer.number], answer.at)
                elif isinstance(answer, Ended):
                    over.append(self._ended(answer))
                    worn = answer.worn
                elif isinstance(answer, Report) and self._running is not None:
                    self._running.report(answer.fraction, answer.text)
            if over:
                self._owner.pace.ended(len(over), sum(attempt.lasted for attempt, _ in over))
            gone = worn or (self._killed and not self.sent)
        for attempt, ending in over:
            self._owner.ended(attempt, ending)
        last = answers[-1] if answers else None
        if last is None or isinstance(last, Broken):
            self._lose(last)
            return False
        return not gone

    def _begin(self, attempt: Attempt, at: float) -> None:
        """It is heard to have begun. Should this worker be killed before that, its process dies
        with it, and the attempt counts as not begun. The caller has the mutex."""
        self._running = attempt
        attempt.begin(at)
        if attempt.abandoned or attempt.stopped_for in (Outcome.TIMEOUT, Outcome.CANCELLED):
            self._kill_alone(attempt)

    def _ended(self, answer: Ended) -> tuple[Attempt, Ending | None]:
        """The caller has the mutex."""
        attempt = self.sent.pop(next(iter(self.sent)))
        assert attempt is self._running, "they end in their order"
        self._running = None
        self.ran += 1
        attempt.ended = answer.at
        attempt.inside, attempt.completed_inside = answer.inside, answer.written
        ending = answer.ending(attempt.held, attempt.started_at, attempt.late)
        if ending is not None and ending.next is not None and self._owner.app.tracing is not None:
            self._owner.app.tracing.continues(ending.next, attempt.span)
        return attempt, ending

    def _lose(self, last: Broken | Garbled | None) -> None:
        """The process is no use any more: see what becomes of what was sent there. It is the one
        that ran, and perhaps another whose token is gone."""
        why = self._end()
        with self._owner.mutex:
            left, self.sent = list(self.sent.values()), {}
            killed = self._killed
        for attempt in left:
            ending: Ending | None = None  # also when it is not this worker's any more
            if last is not None:
                # The next process may have loaded what is missing.
                error = InvalidTask(last.error) if isinstance(last, Broken) else last
                attempt.begin()
                ending = of_error(attempt, error)
            elif attempt is not self._running:
                ending = never_begun(attempt)
            elif not killed:
                log.warning("%s: %s", attempt, why)
                ending = crashed(attempt, why)
            elif attempt.stopped_for is Outcome.TIMEOUT:
                ending = timed_out(attempt)
            elif attempt.stopped_for is Outcome.RELEASED:
                ending = released(attempt)
            self._owner.ended(attempt, ending)

    def _end(self) -> str:
        """Let it end, if it has not, and see that it does; what it has not begun goes back. From
        here on no other thread may kill it: its number can be another process's."""
        with self._owner.mutex:
            self.take_all_back()
            process, self._process = self._process, None
        return "" if process is None else process.end()
