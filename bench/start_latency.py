"""How long from an enqueue to the start of its handler in another, idle process?

One job at a time, beside a bare loop on the same mechanism (inotify on the log of a SQLite file,
LISTEN and NOTIFY on PostgreSQL) that does the least there is: insert and commit here, wake, claim
by one UPDATE and commit there. They take turns, so both see the same machine. Then the CPU that a
worker uses while nothing happens.

    python -m bench.start_latency --engine sqlite
    python -m bench.start_latency --engine postgres --number 500 --idle 30
"""

from __future__ import annotations

import argparse
import os
import random
import select
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from bench._server import quiet_server
from towline import Towline
from towline.sqlite.inotify import Inotify

VARIABLE = "TOWLINE_BENCH_URL"
PAUSE = (0.03, 0.08)  # seconds of silence before each job
BURST = 0.1  # seconds that the bare loop looks after a write: a sync may lie before its commit
CHANNEL = "bare"
TABLE = "CREATE TABLE IF NOT EXISTS bare (id integer PRIMARY KEY, started bigint)"

app = Towline(os.environ.get(VARIABLE, "sqlite:///bench.db"))


@app.task
def started() -> int:
    """When it was called, by a clock that all processes of a machine share."""
    return time.monotonic_ns()


# ---- a bare loop


def bare_sqlite(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)
    return connection


def loop_sqlite(path: str) -> None:
    """Wake at a write to the log, look until it can be seen, claim."""
    inotify = Inotify()
    with closing(bare_sqlite(path)) as connection:
        inotify.add(path + "-wal")
        print("ready", flush=True)
        while True:
            select.select([inotify.descriptor], [], [], 1.0)
            inotify.clear()
            until = time.monotonic() + BURST
            while time.monotonic() < until:
                if connection.execute("SELECT 1 FROM bare WHERE started IS NULL").fetchone():
                    connection.execute("BEGIN IMMEDIATE")
                    ids = connection.execute("SELECT id FROM bare WHERE started IS NULL").fetchall()
                    connection.execute("UPDATE bare SET started = 0 WHERE started IS NULL")
                    connection.execute("COMMIT")
                    now = time.monotonic_ns()
                    for id in ids:
                        connection.execute("UPDATE bare SET started = ? WHERE id = ?", (now, *id))
                time.sleep(0.0002)


def loop_postgres(url: str) -> None:
    """Wake at a notification, claim."""
    with (
        closing(psycopg.connect(url, autocommit=True)) as ears,
        closing(psycopg.connect(url, autocommit=True)) as connection,
    ):
        ears.execute(f"LISTEN {CHANNEL}".encode())
        print("ready", flush=True)
        for _ in ears.notifies():
            claim = "UPDATE bare SET started = 0 WHERE started IS NULL RETURNING id"
            ids = connection.execute(claim).fetchall()
            now = time.monotonic_ns()
            for id in ids:
                connection.execute("UPDATE bare SET started = %s WHERE id = %s", (now, *id))


# ---- measuring


def bare_job(engine: str, connection: Any) -> Callable[[], int]:
    """A function that stores one, waits, and returns when it was started."""
    sign = "?" if engine == "sqlite" else "%s"

    def run() -> int:
        if engine == "sqlite":
            connection.execute("INSERT INTO bare (started) VALUES (NULL)")
            (id,) = connection.execute("SELECT last_insert_rowid()").fetchone()
        else:
            insert = "INSERT INTO bare (started) VALUES (NULL) RETURNING id"
            (id,) = connection.execute(insert).fetchone()
            connection.execute(f"NOTIFY {CHANNEL}".encode())
        while True:
            time.sleep(0.02)
            found = connection.execute(f"SELECT started FROM bare WHERE id = {sign}", (id,))
            if at := found.fetchone()[0]:
                return int(at)

    return run


def towline_job() -> int:
    return started.enqueue().result(timeout=60)


def measure(number: int, ways: dict[str, Callable[[], int]]) -> dict[str, list[float]]:
    """Milliseconds from the call that stores a job to the start of its handler, by turns."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for count in range(-10, number):
        for name, way in ways.items():
            time.sleep(random.uniform(*PAUSE))
            began = time.monotonic_ns()
            took = (way() - began) / 1e6
            if count >= 0:
                taken[name].append(took)
    return taken


def cpu_of(pid: int) -> float:
    """Seconds of CPU that all threads of a process have used."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


@contextmanager
def process(role: str, url: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has said that it is ready."""
    environment = {**os.environ, VARIABLE: url if role == "worker" else app.url}
    with subprocess.Popen(
        [sys.executable, "-m", "bench.start_latency", "--role", role, "--url", url],
        env=environment, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()


@contextmanager
def place(engine: str, server: str) -> Iterator[tuple[str, str, Any]]:
    """URLs for the app and for the bare loop, and a connection to the latter."""
    if engine == "sqlite":
        with tempfile.TemporaryDirectory(prefix="latency-") as folder:
            path = f"{folder}/bare.db"
            with closing(bare_sqlite(path)) as connection:
                yield f"sqlite:///{folder}/app.db", path, connection
        return
    with quiet_server(server) as cluster:
        url, bare = cluster.create(), cluster.create()
        with closing(psycopg.connect(bare, autocommit=True)) as connection:
            connection.execute(TABLE.replace("integer", "bigserial"))
            yield url, bare, connection


def report(engine: str, number: int, idle: float, server: str) -> None:
    with place(engine, server) as (url, bare, connection):
        app.use(url)
        app.migrate()
        with process("worker", url) as worker, process(f"bare-{engine}", bare):
            ways = {"towline": towline_job, "bare loop": bare_job(engine, connection)}
            taken = measure(number, ways)
            print(f"{engine}: enqueue to start in another process, {number} of each, ms")
            for name, times in taken.items():
                p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
                print(f"  {name:10} p50 {p50:7.2f}   p99 {p99:7.2f}   max {max(times):7.2f}")
            time.sleep(1)
            before = cpu_of(worker.pid)
            time.sleep(idle)
            used = cpu_of(worker.pid) - before
            print(f"  an idle worker uses {100 * used / idle:.2f} % of one CPU over {idle:g} s")
        app.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--idle", type=float, default=30.0, help="seconds to watch an idle worker")
    parser.add_argument("--server", default="postgres 18", metavar="NAME")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.role == "worker":
        worker = app.worker()
        with worker:
            print("ready", flush=True)
            time.sleep(10**6)
    elif chosen.role == "bare-sqlite":
        loop_sqlite(chosen.url)
    elif chosen.role == "bare-postgres":
        loop_postgres(chosen.url)
    else:
        report(chosen.engine, chosen.number, chosen.idle, chosen.server)


if __name__ == "__main__":
    main()
