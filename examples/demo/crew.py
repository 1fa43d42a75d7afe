"""The worker processes of the demo: started, killed, replaced, stopped."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from towline import StoreUnavailable
from towline.worker import Worker

from .shop import app

START = 30.0  # seconds a process has to register itself
STOP = 20.0
LEASE = 10.0
# Where the processes find this package, whatever the current directory is.
PLACES = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]


class Crew:
    """Processes that run the jobs, each with a log of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __len__(self) -> int:
        return len(self._processes)

    def start(self, *names: str) -> None:
        """Start workers and wait until they have registered themselves."""
        for name in names:
            with self.log_of(name).open("wb") as log:
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-m", "examples.demo", "worker", self._url, name],
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(PLACES)},
                    stdin=subprocess.PIPE,  # closed by our end, however that comes
                    stdout=log,
                    stderr=log,
                )
        end = time.monotonic() + START
        while not set(names) <= {worker.name for worker in app.workers()}:
            gone = [name for name in names if self._processes[name].poll() is not None]
            if gone or time.monotonic() > end:
                raise StoreUnavailable(f"no worker {gone or names}: {self.last_words()}")
            time.sleep(0.01)

    def kill(self, name: str) -> int:
        """End a worker with SIGKILL, in the middle of whatever it does; return its process id."""
        process = self._processes.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        _end_of(process)
        return process.pid

    def stop(self) -> list[int]:
        """Ask all to stop and return their exit codes."""
        for process in self._processes.values():
            process.terminate()
        codes = [_end_of(process) for process in self._processes.values()]
        self._processes.clear()
        return codes

    def log_of(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def last_words(self) -> str:
        """The ends of the logs, for when something went wrong."""
        texts = [log.read_text(errors="replace") for log in sorted(self._folder.glob("*.log"))]
        return "\n".join(line for text in texts for line in text.splitlines()[-5:])


def _end_of(process: subprocess.Popen[bytes]) -> int:
    """Wait for it, and close our end of its standard input only then."""
    try:
        process.wait(STOP)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()
    return process.returncode


def work(url: str, name: str) -> int:
    """Be a worker of the demo until told to stop, or until the demo is gone."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    app.use(url)
    worker = app.worker(name=name, concurrency=8, lease=LEASE)
    threading.Thread(target=_follow, args=(worker,), daemon=True).start()
    return worker.run()


def _follow(worker: Worker) -> None:
    """The demo holds the other end of our standard input, and says nothing until it ends."""
    os.read(0, 1)  # not by sys.stdin, whose lock would be held when the process ends
    worker.stop(now=True, wait=False)
