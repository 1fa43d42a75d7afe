"""How soon does another process know of a commit, and what does it cost to wait for it?

One process enqueues, another waits: with the engine's own wake, or with a bare loop on the same
mechanism (inotify and `data_version`; psycopg's `notifies`). They take turns, in the same run.
Shown are the time from the call of `enqueue` to the ring in the other process, and the CPU that the
waiting process uses while nothing happens.

    python -m bench.wake             # about four minutes
    python -m bench.wake --quick     # fewer, and a shorter silence
"""

from __future__ import annotations

import argparse
import random
import select
import shutil
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import psycopg
from psycopg.sql import SQL, Identifier

from bench._server import add_option, quiet_server, version
from towline import Towline
from towline.sqlite.inotify import Inotify
from towline.task import Task

ROOT = Path(__file__).resolve().parents[1]
STEP, BURST = 0.0001, 0.1  # seconds: the bare loop looks so often for so long after a write
BETWEEN = (0.005, 0.02)  # seconds between two jobs
ROUNDS = 5


# ---- the process that waits: `python -m bench.wake wait ours|bare URL`


def say_when(*_: object) -> None:
    print(time.monotonic_ns(), flush=True)


def wait_with_ours(url: str) -> None:
    for wake in Towline(url).runner.engine.wakes():
        wake.start(say_when)


def wait_barely(url: str) -> None:
    loop = bare_sqlite if url.startswith("sqlite") else bare_postgres
    threading.Thread(target=loop, args=[url], daemon=True).start()


def bare_sqlite(url: str) -> None:
    path = url.removeprefix("sqlite:///")
    connection = sqlite3.connect(path, isolation_level=None)
    pragma = "PRAGMA data_version"
    ((seen,),) = connection.execute(pragma).fetchall()
    inotify = Inotify()
    inotify.add(path + "-wal")
    poll = select.poll()
    poll.register(inotify.descriptor, select.POLLIN)
    say_when()
    while True:
        poll.poll()
        inotify.clear()
        until = time.monotonic() + BURST
        while time.monotonic() < until:
            ((now,),) = connection.execute(pragma).fetchall()
            if now != seen:
                seen = now
                say_when()
                break
            time.sleep(STEP)


def bare_postgres(url: str) -> None:
    connection = psycopg.connect(url, autocommit=True)
    connection.execute(SQL("LISTEN {}").format(Identifier("public.towline_wake")))
    say_when()
    for _ in connection.notifies():
        say_when()


def be_waiting(how: str, url: str) -> None:
    """Answer each line with the CPU used so far."""
    (wait_with_ours if how == "ours" else wait_barely)(url)
    for _ in sys.stdin:
        print("cpu", time.process_time(), flush=True)


# ---- the process that enqueues


class Waiting:
    """The other process, and the times at which it was rung."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process
        self.rung()  # once when it is ready

    def rung(self) -> int:
        assert self._process.stdout
        return int(self._process.stdout.readline())

    def cpu(self) -> float:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline().split()[1])


@contextmanager
def waiting(how: str, url: str) -> Iterator[Waiting]:
    command = [sys.executable, "-m", "bench.wake", "wait", how, url]
    with Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            yield Waiting(process)
        finally:
            process.kill()


def time_rings(work: Task[[int], None], other: Waiting, number: int) -> tuple[list[float], float]:
    """Milliseconds from call to ring, and the middle of those from call to return."""
    latencies, calls = [], []
    for count in range(number):
        time.sleep(random.uniform(*BETWEEN))
        began = time.monotonic_ns()
        work.enqueue(count)
        calls.append((time.monotonic_ns() - began) / 1e6)
        latencies.append((other.rung() - began) / 1e6)
    return latencies, statistics.median(calls)


def idle(other: Waiting, seconds: float) -> float:
    """Per cent of a core, after what a last job has left to do."""
    time.sleep(2)
    before, began = other.cpu(), time.monotonic()
    time.sleep(seconds)
    return (other.cpu() - before) / (time.monotonic() - began) * 100


def compare(title: str, url: str, number: int, silence: float, *, durable: bool) -> None:
    app = Towline(url, durable=durable)

    @app.task
    def work(number: int) -> None:
        pass

    app.migrate()
    found: dict[str, list[float]] = {"bare": [], "ours": []}
    calls: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(ROUNDS):
        for how in found:
            with waiting(how, url) as other:
                latencies, call = time_rings(work, other, number // ROUNDS)
                found[how] += latencies
                calls[how].append(call)
    for how, latencies in found.items():
        with waiting(how, url) as other:
            work.enqueue(0)
            other.rung()
            share = idle(other, silence)
        cuts = statistics.quantiles(latencies, n=100)
        print(
            f"| {title} | {how} | {statistics.median(calls[how]):.2f} | {cuts[49]:.2f} "
            f"| {cuts[98]:.2f} | {max(latencies):.2f} | {share:.3f} |",
            flush=True,
        )
    app.close()


def main() -> None:
    if sys.argv[1:2] == ["wait"]:
        be_waiting(*sys.argv[2:4])
        return
    parser = argparse.ArgumentParser(description="From a commit to a ring in another process.")
    add_option(parser)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    number, silence = (100, 5.0) if options.quick else (500, 30.0)
    with quiet_server(options.server) as server:
        print(f"{number} jobs each; SQLite {sqlite3.sqlite_version}, {version(server.url)}\n")
        print("| | waits | enqueue p50 ms | ring p50 | p99 | max | idle CPU % |")
        print("|---|---|---|---|---|---|---|", flush=True)
        in_folder(lambda url: compare("SQLite FULL", url, number, silence, durable=True))
        in_folder(lambda url: compare("SQLite NORMAL", url, number, silence, durable=False))
        compare("PostgreSQL", server.create(), number, silence, durable=True)


def in_folder(work: Callable[[str], None]) -> None:
    folder = tempfile.mkdtemp(prefix="towline-wake-")
    try:
        work(f"sqlite:///{folder}/app.db")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
