"""A crowd: the same work in several spawned processes of several threads, all at once."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from tests.kit import rows
from tests.races.auditor import audit_tables
from windlass import Windlass

T = TypeVar("T")

# A clock that runs a thousand times as fast: what comes back after ten seconds is back in ten
# milliseconds. It is the same clock in every process.
quick_clock = time.time_ns

_start: Any = None


def open_quick(url: str) -> Windlass:
    """An app of a crowd: patient with the writer, careless of power cuts, on the quick clock."""
    return Windlass(url, lock_timeout=60, durable=False, clock=quick_clock)


def _enter(start: Any) -> None:
    global _start
    _start = start


def _in_threads(
    work: Callable[[Windlass, int], T], url: str, process: int, threads: int
) -> list[T]:
    app = open_quick(url)
    app.migrate()
    together = threading.Barrier(threads)

    def begin(thread: int) -> T:
        together.wait(60)
        return work(app, process * threads + thread)

    _start.wait(60)
    try:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(begin, range(threads)))
    finally:
        app.close()


def crowd(
    work: Callable[[Windlass, int], T], url: str, *, processes: int = 3, threads: int = 2
) -> list[T]:
    """Run `work(app, number)` everywhere at once; one app per process, one answer per thread."""
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(processes)
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=_enter, initargs=(start,)
    ) as pool:
        futures = [
            pool.submit(_in_threads, work, url, process, threads) for process in range(processes)
        ]
        return [answer for future in futures for answer in future.result()]


def audit(database: Path) -> None:
    """What must hold whatever happened: nothing dangles, counters agree, the file is sound."""
    connection = sqlite3.connect(database)
    try:
        assert audit_tables(connection) == []
    finally:
        connection.close()
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]
