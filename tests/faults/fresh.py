"""Fresh processes of the crash loop: one that dies in an act, one that lets clean workers come.

They are forked from a process that has imported everything and opened nothing.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests import database as databases
from tests.faults import event_log, tasks
from tests.faults.crash_acts import ACTS, EVERY_THREAD
from tests.faults.crash_point import CrashPoint, When, install
from tests.forked import CONTEXT
from tests.kit import HOUR
from tests.races.auditor import ask, open_reader
from towline.model import Live

ROUNDS = 6  # of clean workers, each an hour later, until nothing is left
PATIENCE = 60.0  # seconds for one process


@dataclass
class Place:
    """A database, and the folder of its event log."""

    url: str
    folder: Path

    def enter(self) -> None:
        """Let the application of this process work here."""
        os.environ[event_log.VARIABLE] = str(self.folder / event_log.NAME)
        os.environ[tasks.VARIABLE] = self.url
        tasks.app.use(self.url)


@contextmanager
def places(engine: str, folder: Path) -> Iterator[Place]:
    """A fresh database of this engine, and a folder for the event log."""
    name = databases.SQLITE if engine == "sqlite" else databases.newest()
    with databases.opened(name, folder) as database:
        book = folder / "event log"
        book.mkdir()
        yield Place(database.url, book)


def perform(place: Place, name: str, number: int, when: When) -> None:
    """Do an act, and die in it unless it is over before."""
    logging.getLogger().addHandler(logging.NullHandler())
    place.enter()
    point = CrashPoint(number, when, every_thread=name in EVERY_THREAD)
    install(point)
    ACTS[name](point)


def heal(place: Place) -> None:
    """Clean workers, until nothing is left that could be done."""
    logging.getLogger().addHandler(logging.NullHandler())
    place.enter()
    app = tasks.app
    app.migrate()
    for number in range(ROUNDS):
        if number:
            app.use(place.url, clock=partial(later, number))
        app.worker(concurrency=4, lease=1, drain=True, name=f"clean-{number}").run()
        with closing(open_reader(place.url)) as reader:
            held = f"SELECT job_id FROM towline_live WHERE state = {int(Live.RUNNING)}"
            assert not ask(reader, held), "jobs of a dead process were not taken over at once"
            if not ask(reader, "SELECT 1 FROM towline_live LIMIT 1"):
                return


def later(hours: int) -> int:
    return time.time_ns() // 1000 + hours * HOUR


def run(target: Callable[..., None], *args: Any) -> int:
    """Run it in a fresh process and return its exit code."""
    process = CONTEXT.Process(target=target, args=args)
    process.start()
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()
        return -signal.SIGALRM
    assert process.exitcode is not None
    return process.exitcode
