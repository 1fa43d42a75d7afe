"""Several worker processes as one: started, started again when they die, stopped in order.

A line (a pair of sockets) leads from the supervisor to each child and carries one word at a time:
stop, or stop now. Its end tells the child that the supervisor is gone. A child says one word too:
done, when it has drained. Signals would not do: those of a terminal or of systemd reach the whole
group, and a child would count ours as its second one. An exit code would not do either: a handler
may end its process with any.

    started ──► said that it is done, or was told to stop ──► left alone
       ▲  └───► ended ──► pause, 1 s and twice as long each time up to 30 s ──┐
       └───────────────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ..exit_codes import AT_ONCE, DATABASE, FAILED, OK, USAGE
from .supervised import DONE, NOW, STOP, STOP_OVERRUN, on_signal

if TYPE_CHECKING:
    from .health.crew import CrewHealth

log = logging.getLogger("towline.supervisor")

EARLY = (-signal.SIGTERM, -signal.SIGINT)  # one that was told to stop while it was starting
FIRST_RESTART_PAUSE, LONGEST_RESTART_PAUSE = 1.0, 30.0  # seconds until a dead one starts again
LONG_LIFE = 60.0  # seconds after which a death is not for a fault of the start
RELOAD_GRACE = 5.0  # seconds handlers have when the code has changed

Watch = Callable[[Callable[[], None]], None]


class Child(Struct, eq=False):
    """One worker process, and our end of its line."""

    number: int
    process: subprocess.Popen[bytes]
    line: socket.socket
    born: float = field(default_factory=time.monotonic)
    replaced: bool = False  # told to stop because the code has changed

    def lived_long(self) -> bool:
        """Whether it did not die of its start."""
        return time.monotonic() - self.born >= LONG_LIFE

    def has_said_that_it_is_done(self) -> bool:
        """Once it has ended: whether it did so by itself, and on purpose."""
        try:
            return self.line.recv(1, socket.MSG_DONTWAIT) == DONE
        except OSError:
            return False


class Supervisor:
    """Keeps `number` children running until it is told to stop.

    `command` makes the command of a child from its number and its end of the line. With `watch`,
    which calls back when code has changed, they are replaced then. With `health` each has a
    second line, on which it is asked how it is.
    """

    def __init__(
        self,
        command: Callable[[int, int], Sequence[str]],
        number: int,
        grace: float,
        watch: Watch | None = None,
        health: CrewHealth | None = None,
    ) -> None:
        self._command = command
        self._number = number
        self._grace = grace
        self._watch = watch
        self._health = health
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()  # what to do about each
        self._children: set[Child] = set()
        self._timers: dict[Callable[[], None], float] = {}  # what to do later, and when
        self._pauses: dict[int, float] = {}
        self._signals = 0
        self._code = OK

    def run(self) -> int:
        """Work until all have ended; return the exit code.

        0 when all stopped well, 3 after a second signal, 2 when the command itself is wrong, 4 when
        the database cannot be used, 1 when one had to be killed, died while stopping or kept dying.
        """
        on_signal(lambda number, frame: self._events.put(self._stop))
        for number in range(1, self._number + 1):
            self._start(number)
        if self._watch is not None:
            changed = partial(self._events.put, self._replace)
            threading.Thread(target=self._watch, args=(changed,), daemon=True).start()
        while self._children or (not self._signals and (self._timers or self._watch)):
            self._step()
        on_signal(signal.SIG_IGN)
        if self._code == OK and self._signals > 1:
            return AT_ONCE
        return self._code

    def _step(self) -> None:
        """Wait for the next thing that happens or is due, and do what it asks for."""
        first = min(self._timers.values(), default=None)
        try:
            pause = None if first is None else max(first - time.monotonic(), 0)
            act = self._events.get(timeout=pause)
        except Empty:
            act = min(self._timers, key=self._timers.__getitem__)
            del self._timers[act]
        act()

    def _do_in(self, seconds: float, act: Callable[[], None]) -> None:
        self._timers[act] = time.monotonic() + seconds

    # ---- children

    def _start(self, number: int) -> None:
        """Start one, or say why not and try again later: there may be no room for it just now."""
        try:
            child = self._started(number)
        except (OSError, MemoryError) as error:
            pause = self._pause(number)
            log.error("no worker process can be started (%s): again in %g s", error, pause)
            return
        self._children.add(child)
        log.info("worker process %d started (%d of %d)", child.process.pid, number, self._number)
        try:
            threading.Thread(target=self._wait_for, args=(child,), daemon=True).start()
        except RuntimeError:  # not even for a thread
            child.process.kill()
            self._wait_for(child)

    def _started(self, number: int) -> Child:
        ours, theirs = socket.socketpair()
        ends = [theirs]
        try:
            command = [*self._command(number, theirs.fileno())]
            if self._health is not None:
                ends.append(self._health.open_line(number))
                command.append(f"--asks={ends[-1].fileno()}")
            process = subprocess.Popen(
                command,
                pass_fds=[end.fileno() for end in ends],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C in a terminal reaches only us
            )
        except BaseException:
            ours.close()
            self._forget_health(number)
            raise
        finally:
            for end in ends:
                end.close()
        return Child(number, process, ours)

    def _forget_health(self, number: int) -> None:
        if self._health is not None:
            self._health.remove(number)

    def _wait_for(self, child: Child) -> None:
        child.process.wait()
        self._events.put(partial(self._ended, child))

    def _ended(self, child: Child) -> None:
        self._children.discard(child)
        self._forget_health(child.number)
        done = child.has_said_that_it_is_done()
        child.line.close()
        code = child.process.returncode
        if self._signals:
            if code not in (OK, AT_ONCE, *EARLY):
                log.error("worker process %d %s while stopping", child.process.pid, _how(code))
                self._code = self._code or FAILED
        elif child.replaced:
            self._start(child.number)
        elif code in (USAGE, DATABASE):
            # The command, the application's code or the database is wrong, and the child has said
            # so: starting it again would not help.
            if self._watch is not None:
                log.error("the worker cannot start; waiting for a change of the code")
            else:
                self._code = code
                self._stop()
        elif done and code == OK:
            self._pauses.pop(child.number, None)
        else:
            self._start_later(child)

    def _start_later(self, child: Child) -> None:
        if child.lived_long():
            self._pauses.pop(child.number, None)
        how = _how(child.process.returncode)
        if child.process.returncode in (OK, AT_ONCE):
            how += " though this supervisor did not stop it"
        log.error(
            "worker process %d %s: another starts in %g s; its jobs are taken over",
            child.process.pid, how, self._pause(child.number),
        )  # fmt: skip

    def _pause(self, number: int) -> float:
        """Start this one again after a pause, longer each time."""
        pause = self._pauses.get(number, 0.0)
        pause = min(pause * 2, LONGEST_RESTART_PAUSE) if pause else FIRST_RESTART_PAUSE
        self._pauses[number] = pause
        self._do_in(pause, partial(self._start, number))
        return pause

    def _send(self, word: bytes, children: Iterable[Child]) -> None:
        for child in children:
            try:
                child.line.send(word, socket.MSG_DONTWAIT)
            except OSError:  # it has ended, or its line is full
                pass

    # ---- stopping

    def _stop(self) -> None:
        """First signal: let handlers end. Second: stop at once."""
        self._signals += 1
        if self._health is not None:
            self._health.stopping.set()
        first = self._signals == 1
        if first and self._keeps_dying():
            log.error("stopped while worker processes kept dying")
            self._code = self._code or FAILED
        self._timers.clear()
        log.info("stopping%s", "" if first else " at once")
        self._send(STOP if first else NOW, self._children)
        self._do_in(STOP_OVERRUN + (self._grace if first else 0), self._kill)

    def _kill(self) -> None:
        for child in self._children:
            log.error("worker process %d does not stop: killed", child.process.pid)
            child.process.kill()

    def _keeps_dying(self) -> bool:
        """Whether one has died again soon after it was started again, and not lived long since."""
        well = {child.number for child in self._children if child.lived_long()}
        return any(
            pause > FIRST_RESTART_PAUSE and number not in well
            for number, pause in self._pauses.items()
        )

    def _replace(self) -> None:
        """The code has changed: new children, as soon as the old ones have ended."""
        if self._signals:
            return
        log.info("the code has changed: starting again")
        old = list(self._children)
        for child in old:
            child.replaced = True
        self._send(STOP, old)
        self._timers.clear()
        self._pauses.clear()
        self._do_in(RELOAD_GRACE, partial(self._send, NOW, old))
        for number in set(range(1, self._number + 1)) - {child.number for child in old}:
            self._start(number)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = {each.value: each.name for each in signal.Signals}.get(-code, "unknown")
    return f"was ended by signal {-code} ({name})"
