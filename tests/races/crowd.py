"""A crowd: the same work in several fresh processes of several threads, all at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from tests.database import Database
from tests.forked import CONTEXT
from tests.races.auditor import audit_tables, open_reader
from tests.races.logs import Finding
from towline import Towline

T = TypeVar("T")

# A clock that runs a thousand times as fast: what comes back after ten seconds is back in ten
# milliseconds. It is the same clock in every process.
quick_clock = time.time_ns

_start: Any = None


def open_quick(url: str) -> Towline:
    """An app of a crowd: patient with the writer, careless of power cuts, on the quick clock."""
    return Towline(url, lock_timeout=60, durable=False, clock=quick_clock)


def _enter(start: Any) -> None:
    global _start
    _start = start


def _in_threads(work: Callable[[Towline, int], T], url: str, process: int, threads: int) -> list[T]:
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
    work: Callable[[Towline, int], T], url: str, *, processes: int = 3, threads: int = 2
) -> list[T]:
    """Run `work(app, number)` everywhere at once; one app per process, one answer per thread."""
    start = CONTEXT.Barrier(processes)
    with ProcessPoolExecutor(
        processes, mp_context=CONTEXT, initializer=_enter, initargs=(start,)
    ) as pool:
        futures = [
            pool.submit(_in_threads, work, url, process, threads) for process in range(processes)
        ]
        return [answer for future in futures for answer in future.result()]


def audit(database: Database) -> None:
    """What must hold whatever happened: nothing dangles, counters agree, the database is sound."""
    with closing(open_reader(database.url)) as reader:
        assert audit_tables(reader, sound=True) == []


@contextmanager
def watched(database: Database) -> Iterator[None]:
    """Compare the tables in one snapshot after the other while others race."""
    stop = threading.Event()
    found: list[Finding] = []
    looks = 0

    def look() -> None:
        nonlocal looks
        with closing(open_reader(database.url)) as reader:
            while not stop.is_set():
                found.extend(audit_tables(reader))
                looks += 1

    with ThreadPoolExecutor(1) as pool:
        watch = pool.submit(look)
        try:
            yield
        finally:
            stop.set()
        watch.result()
    assert found == [], found[:5]
    assert looks > 1, "it was over before anybody looked"
