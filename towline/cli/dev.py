"""`towline dev`: a worker and the dashboard, in one terminal with one log, both with the code as it
is now."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue

import click

from ..exit_codes import OK
from ..text import plain
from .dashboard import HOST, PORT, listening_on
from .ending import CommandError
from .target import APP_VARIABLE, is_name
from .worker import watching

COLOURS = {"worker": "36", "dashboard": "35"}
WIDTH = max(map(len, COLOURS))
GRACE = 10.0  # seconds for them to end after a signal


@click.command()
@click.argument("app", metavar="[MODULE:APP]", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True)
@click.option("--queues", metavar="A,B", help="The queues to work on.")
@click.option("--concurrency", type=int, default=8, show_default=True, help="Attempts at a time.")
def dev(app: str | None, port: int, queues: str | None, concurrency: int) -> int:
    """Work and serve the dashboard, for development: starts again when the code changes."""
    target = app or os.environ.get(APP_VARIABLE)
    if not target or not is_name(target):
        raise CommandError(f"name your app as MODULE:APP, or set ${APP_VARIABLE}")
    watch = watching()
    towline = [sys.executable, "-m", "towline"]
    # The socket is ours: the dashboard that takes another one's place has the same address.
    with listening_on(HOST, port) as listening:
        # The dashboard creates no tables, and might come before the worker that does.
        made = subprocess.run([*towline, "migrate", target], stdout=subprocess.DEVNULL)
        if made.returncode:
            return made.returncode
        work = [*towline, "worker", target, "--reload", f"--concurrency={concurrency}"]
        if queues:
            work.append(f"--queues={queues}")
        show = [*towline, "dashboard", target, f"--socket={listening.fileno()}"]
        return Together({"worker": work, "dashboard": show}, watch, "dashboard", listening).run()


class Together:
    """Programs that run beside each other until a signal comes or one of them ends.

    A worker replaces its own processes when the code changes; the program called `renewed`, which
    serves on the socket, is replaced here. Once it was, it may end: the next change starts it.
    """

    def __init__(
        self,
        commands: dict[str, list[str]],
        watch: Callable[[Callable[[], None]], None],
        renewed: str,
        listening: socket.socket,
    ) -> None:
        self._commands = commands
        self._watch = watch
        self._renewed = renewed
        self._listening = listening
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()  # what to do about each
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self._has_changed = False
        self._code: int | None = None  # the exit code, once it is to end
        self._writing = threading.Lock()
        # They have one end and we the other, which nobody inherits: it closes when we are killed.
        self._until, self._held = os.pipe()

    def run(self) -> int:
        from ..worker.supervised import on_signal

        on_signal(lambda number, frame: self._events.put(partial(self._end, OK)))
        changed = partial(self._events.put, self._renew)
        threading.Thread(target=self._watch, args=(changed,), daemon=True).start()
        try:
            for name in self._commands:
                self._start(name)
            while self._code is None:
                self._events.get()()
        finally:
            _stop(self._running.values())
        for reader in self._readers:
            reader.join(1.0)
        on_signal(signal.SIG_IGN)
        return self._code

    def _end(self, code: int) -> None:
        self._code = code

    # ---- the programs

    def _start(self, name: str) -> None:
        # A group of its own: Ctrl-C comes to us, and we tell them.
        inherited = [self._until, *([self._listening.fileno()] if name == self._renewed else [])]
        process = subprocess.Popen(
            [*self._commands[name], f"--until={self._until}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
            pass_fds=inherited,
        )
        self._running[name] = process
        reader = threading.Thread(target=self._copy, args=(name, process), daemon=True)
        reader.start()
        self._readers = [*filter(threading.Thread.is_alive, self._readers), reader]

    def _renew(self) -> None:
        """The code has changed: another process, as soon as the old one has ended."""
        self._has_changed = True
        _stop([self._running.pop(self._renewed)])
        self._start(self._renewed)

    def _has_ended(self, name: str, process: subprocess.Popen[str]) -> None:
        if self._running.get(name) is not process:
            return  # another one has its place
        if name == self._renewed and self._has_changed:
            self._say(name, "waiting for a change of the code")
        else:
            self._end(process.returncode)

    # ---- what they say

    def _copy(self, name: str, process: subprocess.Popen[str]) -> None:
        """Its lines; then that it has ended."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._say(name, line.rstrip("\n"))
        process.wait()
        self._events.put(partial(self._has_ended, name, process))

    def _say(self, name: str, line: str) -> None:
        """A line, with the name of its program before it."""
        shown = f"{name:<{WIDTH}} │ "
        if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
            shown = f"\x1b[{COLOURS[name]}m{shown}\x1b[0m"
        with self._writing:
            try:
                click.echo(shown + plain(line, lines=False), err=True)
            except OSError:
                pass  # the terminal was closed; who is not read any more could not end


def _stop(processes: Iterable[subprocess.Popen[str]]) -> None:
    """End them all, by force after a while."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    for process in running:
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
