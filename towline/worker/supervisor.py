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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import FrameType

from ..exit_codes import AT_ONCE, DATABASE, FAILED, OK, USAGE
from .supervised import DONE, NOW, STOP, STOP_OVERRUN, on_signal

log = logging.getLogger("towline.supervisor")

EARLY = (-signal.SIGTERM, -signal.SIGINT)  # one that was told to stop while it was starting
FIRST_RESTART_PAUSE, LONGEST_RESTART_PAUSE = 1.0, 30.0  # seconds until a dead one starts again
LONG_LIFE = 60.0  # seconds; one that lived so long did not die of its start
RELOAD_GRACE = 5.0  # seconds handlers have when the code has changed

Watch = Callable[[Callable[[], None]], None]


@dataclass(eq=False)
class Child:
    """One worker process, and our end of its line."""

    number: int
    process: subprocess.Popen[bytes]
    line: socket.socket
    born: float = field(default_factory=time.monotonic)
    replaced: bool = False  # told to stop because the code has changed

    def lived_long(self) -> bool:
        """Whether it did not die of its start."""
        return time.monotonic() - self.born >= LONG_LIFE

    def send(self, word: bytes) -> None:
        try:
            self.line.send(word, socket.MSG_DONTWAIT)
        except OSError:  # it has ended, or was told often enough
            pass

    def has_said_that_it_is_done(self) -> bool:
        """Once it has ended: whether it did so by itself, and on purpose."""
        try:
            return self.line.recv(1, socket.MSG_DONTWAIT) == DONE
        except OSError:
            return False


class Supervisor:
    """Keeps `number` children running until it is told to stop.

    `command` makes the command of a child from its number and its end of the line. With `watch`,
    which calls back when code has changed, they are replaced then.
    """

    def __init__(
        self,
        command: Callable[[int, int], Sequence[str]],
        number: int,
        grace: float,
        watch: Watch | None = None,
    ) -> None:
        self._command = command
        self._number = number
        self._grace = grace
        self._watch = watch
        self._events: SimpleQueue[Child | int | None] = SimpleQueue()
        self._children: set[Child] = set()
        self._later: dict[int, float] = {}  # when a dead one is started again
        self._pauses: dict[int, float] = {}
        self._signals = 0
        self._code = OK
        self._hurry_at: float | None = None
        self._kill_at: float | None = None

    def run(self) -> int:
        """Work until all have ended; return the exit code.

        0 when all stopped well, 3 after a second signal, 2 when the command itself is wrong, 4 when
        the database cannot be used, 1 when one had to be killed, died while stopping or kept dying.
        """
        on_signal(self._on_signal)
        for number in range(1, self._number + 1):
            self._start(number)
        if self._watch is not None:
            changed = lambda: self._events.put(None)  # noqa: E731
            threading.Thread(target=self._watch, args=(changed,), daemon=True).start()
        while self._children or self._later or self._waits_for_change():
            self._step()
        on_signal(signal.SIG_IGN)
        if self._code == OK and self._signals > 1:
            return AT_ONCE
        return self._code

    def _waits_for_change(self) -> bool:
        return self._watch is not None and not self._signals

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._events.put(number)

    def _step(self) -> None:
        """Wait for the next thing that happens or is due, and do what it asks for."""
        times = [*self._later.values()]
        times += [at for at in (self._hurry_at, self._kill_at) if at is not None]
        try:
            pause = max(min(times) - time.monotonic(), 0) if times else None
            event = self._events.get(timeout=pause)
        except Empty:
            self._do_due()
            return
        if isinstance(event, Child):
            self._ended(event)
        elif event is None:
            self._replace()
        else:
            self._stop(event)

    def _do_due(self) -> None:
        now = time.monotonic()
        for number, at in list(self._later.items()):
            if now >= at:
                del self._later[number]
                self._start(number)
        if self._hurry_at is not None and now >= self._hurry_at:
            self._hurry_at = None
            self._send(NOW)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            for child in self._children:
                log.error("worker process %d does not stop: killed", child.process.pid)
                child.process.kill()

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
        try:
            with theirs:
                process = subprocess.Popen(
                    self._command(number, theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                    process_group=0,  # Ctrl-C in a terminal reaches only us
                )
        except BaseException:
            ours.close()
            raise
        return Child(number, process, ours)

    def _wait_for(self, child: Child) -> None:
        child.process.wait()
        self._events.put(child)

    def _ended(self, child: Child) -> None:
        self._children.discard(child)
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
            self._give_up(child, code)
        elif done and code == OK:
            self._pauses.pop(child.number, None)
        else:
            self._start_later(child)

    def _give_up(self, child: Child, code: int) -> None:
        """The command, the application's code or the database is wrong, and it said so; starting it
        again would not help."""
        if self._watch is not None:
            log.error("the worker cannot start; waiting for a change of the code")
            self._later.pop(child.number, None)
            return
        self._code = code
        self._stop(signal.SIGTERM)

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
        self._later[number] = time.monotonic() + pause
        return pause

    def _send(self, word: bytes) -> None:
        for child in self._children:
            child.send(word)

    # ---- stopping

    def _stop(self, number: int) -> None:
        """First signal: let handlers end. Second: stop at once."""
        self._signals += 1
        if self._signals == 1 and self._keeps_dying():
            log.error("stopped while worker processes kept dying")
            self._code = self._code or FAILED
        self._later.clear()
        self._hurry_at = None
        first = self._signals == 1
        log.info("stopping%s", "" if first else " at once")
        self._send(STOP if first else NOW)
        self._kill_at = time.monotonic() + STOP_OVERRUN + (self._grace if first else 0)

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
        living = {child.number for child in self._children}
        for child in self._children:
            child.replaced = True
        self._send(STOP)
        self._hurry_at = time.monotonic() + RELOAD_GRACE
        self._later.clear()
        self._pauses.clear()
        for number in set(range(1, self._number + 1)) - living:
            self._start(number)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"was ended by signal {-code}"
