"""How should many processes wait for the writer of one SQLite file?

Every mode runs in every cell: so many processes that do nothing but write, turns of two sizes, and
beside them nobody, an application that writes a little every 5 ms, or one that holds the writer for
5 or 200 ms. Prints one markdown table. Compare within a cell; the figures of two machines, or of
two sizes, have little to do with each other.

    python bench/writer_lock.py              # all, about three minutes
    python bench/writer_lock.py --quick      # one cell of each kind, half a minute
    python bench/writer_lock.py --only baton --only towline
"""

from __future__ import annotations

import argparse
import fcntl
import multiprocessing
import os
import random
import shutil
import sqlite3
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from towline.sqlite.lock import Turn, WriterLock

RETRY = 0.0005
ROWS = 10_000
TURNS = (0.0015, 0.0003)  # seconds


def open_database(path: str, timeout: float = 0) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=timeout)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def pause(seconds: float = RETRY) -> None:
    time.sleep(seconds * (0.5 + random.random()))


def try_begin(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False
    return True


def begin(connection: sqlite3.Connection) -> None:
    while not try_begin(connection):
        pause()


class Mode:
    """A way to wait: `enter` returns inside a write transaction, `leave` is called after it."""

    timeout: float = 0

    def __init__(self, path: str) -> None:
        self.path = path
        self.connection = open_database(path, self.timeout)

    def enter(self) -> None:
        begin(self.connection)

    def leave(self, took: float) -> None:
        pass

    def close(self) -> None:
        self.connection.close()


class BusyTimeout(Mode):
    """SQLite's own busy handler."""

    timeout = 30

    def enter(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")


class Retry(Mode):
    """BEGIN IMMEDIATE again every 0.5 ms, jittered; no lock file."""


class LockFile(Mode):
    """Modes with byte locks in a lock file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.file = os.open(path + ".bench", os.O_RDWR | os.O_CREAT)

    def take(self, byte: int) -> bool:
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError:
            return False
        return True

    def let_go(self, byte: int) -> None:
        fcntl.lockf(self.file, fcntl.LOCK_UN, 1, byte)

    def close(self) -> None:
        os.close(self.file)
        super().close()


class OneLock(LockFile):
    """One lock, polled by everybody."""

    def enter(self) -> None:
        while not self.take(0):
            pause()
        begin(self.connection)

    def leave(self, took: float) -> None:
        self.let_go(0)


class Baton(LockFile):
    """Two locks: one to hold, one to be the next; both polled every 0.5 ms."""

    gap: ClassVar[float] = 0
    quick: ClassVar[bool] = False

    def enter(self) -> None:
        while not self.take(1):
            pause()
        started = time.monotonic()
        while not self.take(0):
            if self.quick:
                time.sleep(min(RETRY, 0.00005 + (time.monotonic() - started) / 8))
            else:
                pause()
        self.let_go(1)
        begin(self.connection)

    def leave(self, took: float) -> None:
        if self.gap:
            time.sleep(max(0.0002, took * self.gap))
        self.let_go(0)


class QuickBaton(Baton):
    """The same; the next in line, and only it, looks every 0.05 ms at first."""

    quick = True


class HalfGap(QuickBaton):
    """Quick baton; half the turn's time of rest after every turn, holding the baton."""

    gap = 0.5


class FullGap(QuickBaton):
    """Quick baton; the turn's whole time of rest after every turn."""

    gap = 1.0


class Ticket(LockFile):
    """Strict order: a numbered byte each; one's turn comes when no lower byte is locked."""

    def enter(self) -> None:
        while not self.take(0):
            time.sleep(0.00005)
        number = int.from_bytes(os.pread(self.file, 8, 0), "little") + 1
        os.pwrite(self.file, number.to_bytes(8, "little"), 0)
        self.number = 1000 + number
        self.take(self.number)
        self.let_go(0)
        started = time.monotonic()
        while self.ahead():
            time.sleep(min(RETRY, 0.00005 + (time.monotonic() - started) / 8))
        begin(self.connection)

    def ahead(self) -> bool:
        question = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1000, self.number - 1000, 0)
        answer = fcntl.fcntl(self.file, fcntl.F_GETLK, question)
        return bool(struct.unpack_from("@h", answer)[0] != fcntl.F_UNLCK)

    def leave(self, took: float) -> None:
        self.let_go(self.number)


class Towline(Mode):
    """towline.sqlite.lock: quick baton; rest only while writers outside Towline are about."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.lock = WriterLock(path)
        self.turn = Turn(self.lock)

    def enter(self) -> None:
        if not self.turn.acquire(self.connection, time.monotonic() + 60, "bench"):
            raise self.lock.busy("bench", 60)

    def leave(self, took: float) -> None:
        self.turn.release()

    def close(self) -> None:
        self.lock.close()
        super().close()


MODES: dict[str, type[Mode]] = {
    "busy_timeout": BusyTimeout,
    "retry": Retry,
    "one lock": OneLock,
    "baton": Baton,
    "quick baton": QuickBaton,
    "ticket": Ticket,
    "quick baton, gap 0.5x": HalfGap,
    "quick baton, gap 1x": FullGap,
    "towline": Towline,
}


@dataclass(frozen=True)
class Beside:
    """What else writes: a transaction of so many seconds, every so many seconds."""

    name: str
    hold: float
    every: float


BESIDE = {
    "nobody": None,
    "app": Beside("app, every 5 ms", 0, 0.005),
    "hold5": Beside("app holds 5 ms of 25", 0.005, 0.020),
    "hold200": Beside("app holds 200 ms of 700", 0.2, 0.5),
}


@dataclass(frozen=True)
class Run:
    mode: str
    path: str
    rows: int
    beside: Beside | None
    start: float
    stop: float


@dataclass(frozen=True)
class Outcome:
    done: int
    waits: list[float]


def work(connection: sqlite3.Connection, rows: int) -> None:
    """One turn: updates of neighbouring rows, as a claim makes, and a row that comes and goes."""
    first = random.randrange(ROWS - rows)
    for row in range(first, first + rows):
        connection.execute("UPDATE job SET state = state + 1 WHERE id = ?", (row,))
    cursor = connection.execute("INSERT INTO job (state, text) VALUES (0, ?)", ("x" * 100,))
    connection.execute("DELETE FROM job WHERE id = ?", (cursor.lastrowid,))


def be_worker(run: Run) -> Outcome:
    mode = MODES[run.mode](run.path)
    waits: list[float] = []
    time.sleep(max(0.0, run.start - time.monotonic()))
    while (asked := time.monotonic()) < run.stop:
        mode.enter()
        began = time.monotonic()
        waits.append(began - asked)
        work(mode.connection, run.rows)
        mode.connection.execute("COMMIT")
        mode.leave(time.monotonic() - began)
    mode.close()
    return Outcome(len(waits), waits)


def be_application(run: Run) -> Outcome:
    assert run.beside is not None
    connection = sqlite3.connect(run.path, timeout=30)
    connection.execute("PRAGMA synchronous = NORMAL")
    waits: list[float] = []
    done = 0
    time.sleep(max(0.0, run.start - time.monotonic()))
    while (asked := time.monotonic()) < run.stop:
        connection.execute("UPDATE application SET value = value + 1")
        got = time.monotonic()
        waits.append(got - asked)
        if run.beside.hold:
            time.sleep(run.beside.hold)
        connection.commit()
        done += got < run.stop
        time.sleep(run.beside.every)
    connection.close()
    return Outcome(done, waits)


def serve(pipe: Connection, role: Callable[[Run], Outcome]) -> None:
    """Run what the pipe brings until it brings None."""
    while (run := pipe.recv()) is not None:
        pipe.send(role(run))


class Crew:
    """Processes that stay for the whole benchmark, so that a run costs no start-up."""

    def __init__(self, size: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pipes: list[Connection] = []
        self.processes = []
        for role in [be_application] + [be_worker] * size:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=serve, args=(theirs, role), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(
        self, mode: str, path: str, workers: int, rows: int, beside: Beside | None, seconds: float
    ) -> tuple[list[Outcome], Outcome | None]:
        start = time.monotonic() + 0.05
        run = Run(mode, path, rows, beside, start, start + seconds)
        pipes = self.pipes[1 : workers + 1] + (self.pipes[:1] if beside else [])
        for pipe in pipes:
            pipe.send(run)
        outcomes: list[Outcome] = [pipe.recv() for pipe in pipes]
        return outcomes[:workers], outcomes[workers] if beside else None

    def dismiss(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()


def create(path: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(
        "CREATE TABLE job (id INTEGER PRIMARY KEY, state INTEGER, text TEXT);"
        "CREATE TABLE application (value INTEGER);"
        "INSERT INTO application VALUES (0);"
    )
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO job VALUES (?, 0, ?)", ((n, "x" * 100) for n in range(ROWS))
    )
    connection.execute("COMMIT")
    connection.close()


def calibrate(path: str) -> dict[float, int]:
    """How many rows make a turn of each size, alone on the machine."""
    connection = open_database(path)
    best = {0: float("inf"), 200: float("inf")}
    for rows in list(best) * 40:
        started = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        work(connection, rows)
        connection.execute("COMMIT")
        best[rows] = min(best[rows], time.perf_counter() - started)
    connection.close()
    per_row = (best[200] - best[0]) / 200
    return {turn: max(1, round((turn - best[0]) / per_row)) for turn in TURNS}


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f}" if seconds < 0.1 else f"{seconds * 1000:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one run")
    parser.add_argument("--quick", action="store_true", help="few cells")
    parser.add_argument("--only", action="append", choices=MODES, help="a mode; may be repeated")
    parser.add_argument("--beside", action="append", choices=BESIDE, help="may be repeated")
    options = parser.parse_args()

    cells = [
        (workers, turn, beside)
        for beside in options.beside or BESIDE
        for turn in TURNS
        for workers in (2, 4, 8)
        if (workers == 4 or beside in ("nobody", "app"))
        and not (options.quick and (workers != 4 or turn != 0.0015))
    ]
    folder = tempfile.mkdtemp(prefix="writer-lock-")
    crew = Crew(8)
    try:
        path = os.path.join(folder, "bench.db")
        create(path)
        # As in an application that stays: without it every run would end with the last
        # connection removing the log, and begin with everybody waiting for its recovery.
        stays = open_database(path)
        stays.execute("SELECT 1 FROM job").fetchone()
        sizes = calibrate(path)
        idle = {}
        for name, other in BESIDE.items():
            if other is not None:
                # The best of three: what the application could do, not what a neighbour left it.
                rates = []
                for _ in range(3):
                    _, alone = crew.run("retry", path, 0, 0, other, options.seconds)
                    assert alone is not None
                    rates.append(alone.done / options.seconds)
                idle[name] = max(rates)
        print(f"SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, {options.seconds} s a run")
        alone_text = ", ".join(f"{name} {rate:.1f}" for name, rate in idle.items())
        rows = ", ".join(f"{rows} in {turn * 1000} ms" for turn, rows in sizes.items())
        print(f"rows per turn: {rows}; transactions/s of the app alone: {alone_text}")
        print()
        print(
            "| processes, turn, beside | mode | tx/s | min/max | wait p50 / p99 / worst ms |"
            " app tx/s = of its rate alone | app wait p99 / worst ms |"
        )
        print("|---|---|---|---|---|---|---|")
        for workers, turn, beside in cells:
            other = BESIDE[beside]
            for mode in options.only or MODES:
                # Each run begins with the files of a quiet database, and no memory of the last.
                if os.path.exists(path + ".lock"):
                    os.unlink(path + ".lock")
                outcomes, application = crew.run(
                    mode, path, workers, sizes[turn], other, options.seconds
                )
                counts = [outcome.done for outcome in outcomes]
                waits = sorted(wait for outcome in outcomes for wait in outcome.waits)
                row = [
                    f"{workers}, {turn * 1000} ms, {other.name if other else 'nobody'}",
                    mode,
                    f"{sum(counts) / options.seconds:.0f}",
                    f"{min(counts) / max(counts):.2f}",
                    " / ".join(milliseconds(waits[int(len(waits) * part)]) for part in (0.5, 0.99))
                    + f" / {milliseconds(waits[-1])}",
                ]
                if application is None:
                    row += ["", ""]
                else:
                    theirs = sorted(application.waits)
                    row += [
                        f"{application.done / options.seconds:.0f}"
                        f" = {application.done / options.seconds / idle[beside]:.0%}",
                        f"{milliseconds(theirs[int(len(theirs) * 0.99)])}"
                        f" / {milliseconds(theirs[-1])}",
                    ]
                print("| " + " | ".join(row) + " |", flush=True)
        print(f"\nintegrity_check: {stays.execute('PRAGMA integrity_check').fetchone()[0]}")
        stays.close()
    finally:
        crew.dismiss()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
