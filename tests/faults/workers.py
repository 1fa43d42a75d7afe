"""Workers of the fault proofs, as an operator runs them: `towline worker`, in processes.

Also what looks on: the state of the tables past the library, and waiting with a limit that says
what was waited for.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.faults import event_log, tasks
from tests.faults.fresh import Place
from tests.races.auditor import ask, open_reader
from tests.until import until

T = TypeVar("T")

TARGET = "tests.faults.tasks:app"
ROOT = Path(__file__).parents[2]
LIMIT = 120.0  # seconds after which something that should have happened has not


class Worker:
    """One `towline worker` process; what it says is kept beside the event log."""

    def __init__(self, place: Place, name: str, *options: str) -> None:
        self.name = name
        self.said = place.folder / f"{name}.txt"
        environment = {
            **os.environ,
            tasks.VARIABLE: place.url,
            event_log.VARIABLE: str(place.folder / event_log.NAME),
        }
        with open(self.said, "ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "towline", "worker", TARGET, "--name", name, *options],
                cwd=ROOT, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def children(self) -> list[int]:
        """The processes it has started: slots, or workers of a supervisor."""
        found: list[int] = []
        for thread in Path(f"/proc/{self.pid}/task").glob("*/children"):
            try:
                found += map(int, thread.read_text().split())
            except OSError:
                pass  # the thread has just ended
        return found

    def stop(self) -> int:
        """Ask it to stop in order; return its exit code."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.process.wait(LIMIT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def at(place: Place) -> Iterator[Callable[..., Worker]]:
    """The application works here; a function that starts workers. None of them is left behind."""
    before = {name: os.environ.get(name) for name in (event_log.VARIABLE, tasks.VARIABLE)}
    url = tasks.app.url
    place.enter()
    workers: list[Worker] = []

    def start(name: str, *options: str) -> Worker:
        workers.append(worker := Worker(place, name, *options))
        return worker

    try:
        yield start
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.signal(signal.SIGCONT)
                worker.kill()
        tasks.app.use(url)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def rows(place: Place, text: str) -> list[tuple[Any, ...]]:
    """What plain SQL finds, past the library."""
    with closing(open_reader(place.url)) as reader:
        return ask(reader, text)


def number(place: Place, text: str) -> int:
    return int(rows(place, text)[0][0])


def open_jobs(place: Place) -> int:
    return number(place, "SELECT count(*) FROM towline_live")


def registered(place: Place) -> int:
    return number(place, "SELECT count(*) FROM towline_worker")


def running(place: Place) -> int:
    """How many handlers have been called and have not ended."""
    book = event_log.EventLog.read(place.folder)
    return len(book.starts.keys() - book.ends.keys())


def wait(what: str, condition: Callable[[], T], limit: float = LIMIT) -> T:
    """Look again and again until it holds."""
    return until(condition, what, limit)
