"""A spawned process, as the worker sees it: its channel and tokens, its end and what that means."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack

from .locate import search_path
from .log_lines import LogLine
from .protocol import Answer, Channel, Garbled, Load
from .tokens import EXIT, Tokens

EXIT_GRACE = 2.0  # seconds a process has to end when it was asked


class SpawnedProcess:
    """A spawned process, which never shares memory, locks or connections with this one."""

    def __init__(self, load: Load) -> None:
        path = search_path(load.modules)
        code = f"import sys; sys.path[:] = {path!r}; from towline.worker.slots.child import main"
        flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
        with ExitStack() as opened:
            ours, theirs = socket.socketpair()
            opened.enter_context(ours)
            with theirs:
                self.tokens = Tokens.pipe()
                opened.callback(self.tokens.close)
                ends = theirs.fileno(), self.tokens.reading
                self._popen = subprocess.Popen(
                    [sys.executable, *flags, "-c", f"{code}; main{ends}"],
                    stdin=subprocess.DEVNULL,
                    pass_fds=ends,
                    process_group=0,  # so that it and what it starts can be killed together
                )
            opened.pop_all()
        self.channel: Channel[Answer | LogLine] = Channel(ours, Answer | LogLine)
        try:
            self.channel.send(load)
        except OSError:
            pass  # it has died already, as will be seen

    def receive(self, timeout: float | None = None) -> list[Answer]:
        """What it says; lines that it logs on the way are logged here, as this process does it."""
        answers: list[Answer] = []
        while not answers and (frames := self.channel.receive(timeout)):
            for frame in frames:
                if isinstance(frame, LogLine):
                    frame.log()
                else:
                    answers.append(frame)
        return answers

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        if self._popen.returncode is None:
            try:
                os.killpg(self._popen.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # all of it has ended

    def end(self) -> str:
        """Ask it to end, then make it; return how it ended, in words."""
        deadline = time.monotonic() + EXIT_GRACE
        try:
            self.tokens.give([EXIT])
            while (left := deadline - time.monotonic()) > 0 and self.receive(left):
                pass  # its last lines are logged
        except (OSError, Garbled):
            pass
        try:
            return _in_words(self._popen.wait(max(deadline - time.monotonic(), 0.1)))
        except subprocess.TimeoutExpired:
            self.kill()
            self._popen.wait()
            return "the process was silent and did not end, so it was killed"
        finally:
            self.channel.close()
            self.tokens.close()


def _in_words(status: int) -> str:
    if status >= 0:
        return f"the process ended with exit status {status}"
    name = {each.value: each.name for each in signal.Signals}.get(-status, "unknown")
    hint = ": was there no memory left?" if -status == signal.SIGKILL else ""
    return f"the process ended by signal {-status} ({name}){hint}"
