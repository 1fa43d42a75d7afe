"""How close does enqueueing come to the bare inserts that it must make?

Bulk: `app.enqueue_many` of N calls against `executemany` of the very same rows into the same three
tables, in one transaction, on a database of the same schema. The rows of the bare inserts are made
beforehand; building the calls (checking and encoding the arguments) is shown apart.

Single: `task.enqueue` against a transaction of the same three inserts and against one that commits
one row of a plain table, at the same synchronous level.

Together: eight threads that enqueue one by one at FULL, sharing commits, against one thread.

    python -m bench.bulk_enqueue             # about a minute and a half
    python -m bench.bulk_enqueue --quick     # fewer rounds, 20 seconds
"""

from __future__ import annotations

import argparse
import gc
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from towline import Towline
from towline.sql import Queries, Row
from towline.sqlite.engine import PACKAGE
from towline.task import Call, Task

SQL = Queries(PACKAGE, "towline_")
TEXT = "a" * 239  # 250 bytes of arguments
THREADS = 8
INSERTS = (SQL.insert_chains.qmark, SQL.insert_jobs.qmark, SQL.insert_live.qmark)


class Timer:
    """Best and median of several rounds, wall and CPU, in microseconds per job."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def __call__(self, work: Callable[[], object]) -> None:
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        self.wall.append((time.perf_counter() - wall) / self.jobs * 1e6)
        self.cpu.append((time.process_time() - cpu) / self.jobs * 1e6)

    def __str__(self) -> str:
        return f"{min(self.wall):.1f} / {median(self.wall):.1f} ({min(self.cpu):.1f})"


def share(bare: Timer, ours: Timer) -> str:
    """What part of the bare rate we reach: by the best and the median wall time, and by CPU."""
    return (
        f"**{min(bare.wall) / min(ours.wall):.2f}** / "
        f"{median(bare.wall) / median(ours.wall):.2f} ({min(bare.cpu) / min(ours.cpu):.2f})"
    )


def open_app(path: Path, *, durable: bool) -> tuple[Towline, Task[[str], None]]:
    app = Towline(f"sqlite:///{path}", durable=durable)

    @app.task
    def work(text: str) -> None:
        pass

    app.migrate()
    return app, work


class Bare:
    """The same rows by hand: no checks, no lock, no answer."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        open_app(path, durable=durable)[0].close()
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self.connection.execute("PRAGMA wal_autocheckpoint = 10000")
        self.connection.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, arguments TEXT)")
        self.next_id = 1

    def rows(self, number: int) -> tuple[list[Row], list[Row], list[Row]]:
        now = time.time_ns() // 1000
        ids = range(self.next_id, self.next_id + number)
        self.next_id += number
        arguments = f'{{"text":"{TEXT}"}}'
        return (
            [(id, "work", now, None) for id in ids],
            [
                (id, id, 0, "work", None, "default", 0, 5, None, None, 0, 0, arguments, None, now)
                for id in ids
            ],
            [(0, "default", 0, id, 0, 0, now) for id in ids],
        )

    def many(self, tables: Sequence[Sequence[Row]]) -> None:
        run = self.connection.cursor()
        run.execute("BEGIN IMMEDIATE")
        for text, rows in zip(INSERTS, tables, strict=True):
            run.executemany(text, rows)
        run.execute("COMMIT")

    def singly(self, tables: Sequence[Sequence[Row]]) -> None:
        run = self.connection.cursor()
        for rows in zip(*tables, strict=True):
            run.execute("BEGIN IMMEDIATE")
            for text, row in zip(INSERTS, rows, strict=True):
                run.execute(text, row)
            run.execute("COMMIT")

    def plain(self, number: int) -> None:
        run = self.connection.cursor()
        arguments = f'{{"text":"{TEXT}"}}'
        for _ in range(number):
            run.execute("INSERT INTO plain (arguments) VALUES (?)", (arguments,))


def bulk(place: Path, number: int, rounds: int) -> str:
    """One row of the first table; each round has its own transaction, databases grow alike."""
    app, work = open_app(place / "ours.db", durable=True)
    bare = Bare(place / "bare.db", durable=True)
    calling, storing, inserting = Timer(number), Timer(number), Timer(number)
    calls: list[Call[Any]] = []

    def call() -> None:
        calls[:] = [work.call(TEXT) for _ in range(number)]

    for _ in range(rounds):
        calling(call)
        storing(lambda: app.enqueue_many(calls))
        rows = bare.rows(number)
        inserting(lambda rows=rows: bare.many(rows))  # type: ignore[misc]
    app.close()
    bare.connection.close()
    return f"| {number:,} | {inserting} | {storing} | {share(inserting, storing)} | {calling} |"


def single(place: Path, durable: bool, number: int, rounds: int) -> str:
    app, work = open_app(place / "ours.db", durable=durable)
    bare = Bare(place / "bare.db", durable=durable)
    ours, three, one = Timer(number), Timer(number), Timer(number)

    def enqueue() -> None:
        for _ in range(number):
            work.enqueue(TEXT)

    for _ in range(rounds):
        ours(enqueue)
        rows = bare.rows(number)
        three(lambda rows=rows: bare.singly(rows))  # type: ignore[misc]
        one(lambda: bare.plain(number))
    app.close()
    bare.connection.close()
    level = "FULL" if durable else "NORMAL"
    return f"| {level} | {one} | {three} | {ours} | {share(three, ours)} | {share(one, ours)} |"


def alone_and_together(work: Task[[str], None], number: int, rounds: int) -> str:
    alone, many = Timer(number), Timer(number)

    def enqueue(times: int) -> None:
        for _ in range(times):
            work.enqueue(TEXT)

    def spread() -> None:
        threads = [
            threading.Thread(target=enqueue, args=(number // THREADS,)) for _ in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for _ in range(rounds):
        alone(lambda: enqueue(number))
        many(spread)
    return f"| {alone} | {many} | {share(alone, many)} |"


def together(place: Path, number: int, rounds: int) -> str:
    """The same number of single enqueues at FULL, by one thread and by eight."""
    app, work = open_app(place / "ours.db", durable=True)
    row = alone_and_together(work, number, rounds)
    app.close()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Enqueueing against the bare inserts.")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print("µs per job, wall best / median (CPU best). A share is the part of the bare rate.\n")

    def fresh(measure: Callable[[Path], str]) -> None:
        with tempfile.TemporaryDirectory(prefix="towline-") as name:
            print(measure(Path(name)), flush=True)

    print("Bulk, target a share of 0.5 or more\n")
    print("| calls | executemany | enqueue_many | share | building the calls |\n|" + "---|" * 5)
    for number, rounds in ((50_000, 3 if quick else 7), (1_000, 30), (10, 200)):
        fresh(lambda place, n=number, r=rounds: bulk(place, n, r))  # type: ignore[misc]
    print("\nSingle\n")
    print(
        "| synchronous | one row | three inserts | enqueue | share of three | share of one |\n|"
        + "---|" * 6
    )
    for durable in (False, True):
        fresh(lambda place, d=durable: single(place, d, 200, 4 if quick else 15))  # type: ignore[misc]
    print(f"\nTogether: {THREADS} threads at FULL; the gain is how many times as fast\n")
    print("| one thread | eight threads | gain |\n|" + "---|" * 3)
    fresh(lambda place: together(place, 400, 4 if quick else 12))


if __name__ == "__main__":
    main()
