"""`towline dev`: a worker that reloads and the dashboard, in one terminal with one log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import click

from ..exit_codes import OK
from ..text import plain
from .dashboard import PORT
from .ending import CommandError
from .target import APP_VARIABLE, is_name

COLOURS = {"worker": "36", "dashboard": "35"}
WIDTH = max(map(len, COLOURS))
GRACE = 10.0  # seconds for both to end after a signal


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
    towline = [sys.executable, "-m", "towline"]
    # The dashboard creates no tables, and might come before the worker that does.
    made = subprocess.run([*towline, "migrate", target], stdout=subprocess.DEVNULL)
    if made.returncode:
        return made.returncode
    work = [*towline, "worker", target, "--reload", f"--concurrency={concurrency}"]
    if queues:
        work.append(f"--queues={queues}")
    return Together(
        {"worker": work, "dashboard": [*towline, "dashboard", target, f"--port={port}"]}
    ).run()


class Together:
    """Programs that run beside each other until a signal comes or one of them ends."""

    def __init__(self, commands: dict[str, list[str]]) -> None:
        self._commands = commands
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._ended = threading.Event()
        self._writing = threading.Lock()

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._ended.set())
        readers: list[threading.Thread] = []
        for name, command in self._commands.items():
            # A group of its own: Ctrl-C comes to us, and we tell them.
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=0,
            )
            self._running[name] = process
            reader = threading.Thread(target=self._copy, args=(name, process), daemon=True)
            reader.start()
            readers.append(reader)
        while not self._ended.wait(0.2):
            pass  # a wait without an end would hear no signal on every system
        failed = [p.returncode for p in self._running.values() if p.poll() not in (None, OK)]
        self._stop()
        for reader in readers:
            reader.join(1.0)
        return failed[0] if failed else OK

    def _copy(self, name: str, process: subprocess.Popen[str]) -> None:
        """Its lines, each with its name before it; at their end it ends."""
        assert process.stdout is not None
        shown = f"{name:<{WIDTH}} │ "
        if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
            shown = f"\x1b[{COLOURS[name]}m{shown}\x1b[0m"
        for line in process.stdout:
            with self._writing:
                click.echo(shown + plain(line.rstrip("\n"), lines=False), err=True)
        process.wait()
        self._ended.set()

    def _stop(self) -> None:
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
