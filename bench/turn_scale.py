"""Does a turn cost the same whatever else the database holds?

A turn finishes k jobs and claims k others in one transaction. It is run on a database with a
thousand jobs of each kind (pending, scheduled for later and blocked with a higher priority, parked,
finished) and on one with a million of each, in alternating rounds, before and after ANALYZE. The
best and the median round are shown, wall and CPU time, and the steps of SQLite's virtual machine,
which are a count and know no noise. Wall time has in it the rests that turns leave for others.

    python -m bench.turn_scale               # about five minutes, most of it filling 2 × 2.3 GB
    python -m bench.turn_scale --quick       # 100,000 instead of a million; under a minute
    python -m bench.turn_scale --keep DIR    # fill the databases once, in DIR, and use them again

The same on PostgreSQL: bench/postgres_turn_scale.py.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import sqlite3
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.seed import OUTPUT, Numbers, new_job, queue_names, register, seed
from towline import Towline
from towline.connections.sqlite3 import execute
from towline.model import Claimed, Ending, Outcome
from towline.operation import Op, drive
from towline.store.turn import Turn

TARGET = 1.3
SMALL = 1_000
SIZES = (1, 10, 100)
JOBS = {1: 60, 10: 300, 100: 500}  # jobs of one timed round, for each size of turn


@dataclass
class Cost:
    """Microseconds per job of each round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


class Lane(ABC):
    """One database under test: its claimed jobs, and as many new ones as were finished."""

    def __init__(self, app: Towline, queues: int) -> None:
        self.app = app
        self.queues = queues
        self.names = queue_names(queues)
        self.worker = register(app)
        self.held: list[Claimed] = []
        self.number = 0

    def turn(self, room: int) -> Op[Turn]:
        endings = [Ending(held, Outcome.COMPLETED, output=OUTPUT) for held in self.held]
        return self.app.runner.store.turn(self.worker, "bench", self.names, room, endings)

    def cpu(self) -> float:
        """Seconds of CPU used so far."""
        return time.process_time()

    def round(self, size: int, cost: Cost | None = None) -> None:
        """Top up, then run turns of one size; the turns alone are timed."""
        turns = JOBS[size] // size
        self.held = self.app.runner.run(self.turn(size)).claimed
        gc.collect()
        cpu, wall = self.cpu(), time.perf_counter()
        for _ in range(turns):
            self.held = self.app.runner.run(self.turn(size)).claimed
        wall = time.perf_counter() - wall
        cpu = self.cpu() - cpu
        assert len(self.held) == size
        self.app.runner.run(self.turn(0))
        self.held = []
        self.refill((turns + 1) * size)
        if cost is not None:
            cost.wall.append(wall / turns / size * 1e6)
            cost.cpu.append(cpu / turns / size * 1e6)

    def refill(self, jobs: int) -> None:
        batch = [new_job(self.number + n, self.queues) for n in range(jobs)]
        self.number += jobs
        self.app.runner.run(self.app.runner.store.enqueue(batch))

    @abstractmethod
    def steps(self, size: int) -> float:
        """How much one turn does, per job, by a count that knows no noise."""


class SqliteLane(Lane):
    def __init__(self, path: Path, queues: int, *, durable: bool) -> None:
        self.path = path
        super().__init__(Towline(f"sqlite:///{path}", durable=durable), queues)

    def steps(self, size: int) -> float:
        """Steps of the virtual machine per job of one turn, which is rolled back: nobody saw it."""
        counted = 0

        def count() -> None:
            nonlocal counted
            counted += 1

        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            cursor = connection.cursor()

            def turn() -> None:
                op = self.turn(size)
                self.held = drive(op, lambda statement: execute(cursor, statement)).claimed

            cursor.execute("BEGIN IMMEDIATE")
            turn()
            connection.set_progress_handler(count, 1)
            turn()
            connection.set_progress_handler(None, 0)
            cursor.execute("ROLLBACK")
        self.held = []
        return counted / size


def compare(lanes: Sequence[Lane], rounds: int) -> list[list[str]]:
    """A small and a large database in alternating rounds; a row for each size of turn."""
    costs = {(size, n): Cost() for size in SIZES for n in range(len(lanes))}
    # Counted first: how many dead rows lie about later depends on when they are cleared away.
    steps = {(size, n): lane.steps(size) for size in SIZES for n, lane in enumerate(lanes)}
    for lane in lanes:
        for size in SIZES:
            lane.round(size)
    for number in range(rounds):
        for size in SIZES:
            for n in (0, 1) if number % 2 else (1, 0):
                lanes[n].round(size, costs[size, n])
    rows = []
    for size in SIZES:
        a, b = costs[size, 0], costs[size, 1]
        ratios = [
            measure(b_times) / measure(a_times)
            for a_times, b_times in ((a.wall, b.wall), (a.cpu, b.cpu))
            for measure in (min, median)
        ]
        rows.append([
            str(size),
            f"{min(a.wall):.1f} / {median(a.wall):.1f}",
            f"{min(b.wall):.1f} / {median(b.wall):.1f}",
            f"**{ratios[0]:.2f}** / {ratios[1]:.2f}",
            f"{min(a.cpu):.1f} → {min(b.cpu):.1f}",
            f"**{ratios[2]:.2f}** / {ratios[3]:.2f}",
            f"{steps[size, 0]:.1f} → {steps[size, 1]:.1f}",
        ])  # fmt: skip
    for lane in lanes:
        lane.app.close()
    return rows


def analyze(path: Path) -> None:
    """Gather statistics, and forget that a writer outside was seen: it would be left room for."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ANALYZE")
    path.with_name(path.name + ".lock").unlink()


def filled(place: Path, keep: Path | None, each: int, queues: int) -> Path:
    """A filled database to run on: a new one, or a copy of one that is kept."""
    path = place / f"{each}-{queues}.db"
    kept = path if keep is None else keep / path.name
    if not kept.exists():
        begin = time.perf_counter()
        seed(kept, Numbers.each(each, queues))
        took = time.perf_counter() - begin
        print(f"{5 * each:,} jobs, {queues} queues: {took:.0f} s", file=sys.stderr, flush=True)
    if keep is not None:
        shutil.copyfile(kept, path)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of a turn beside a million rows.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--each", type=int, help="jobs of each kind in the large database")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--keep", type=Path, metavar="DIR")
    options = parser.parse_args()
    each = options.each or (100_000 if options.quick else 1_000_000)
    rounds = options.rounds or (5 if options.quick else 10)

    print(
        f"Turns with {SMALL:,} → {each:,} jobs of each kind; µs per job, best / median of {rounds}."
    )
    print(f"Target: ratio of the best at most {TARGET}. SQLite {sqlite3.sqlite_version}.\n")
    print(
        "| queues | synchronous | statistics | k | small, wall | large, wall | ratio wall "
        "| CPU, best | ratio CPU | VM steps |"
    )
    print("|" + "---|" * 10)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="towline-") as place:
        for queues in (1, 5):
            paths = [filled(Path(place), options.keep, number, queues) for number in (SMALL, each)]
            for statistics in ("none", "ANALYZE"):
                if statistics == "ANALYZE":
                    for path in paths:
                        analyze(path)
                for durable in (False, True):
                    level = "FULL" if durable else "NORMAL"
                    lanes = [SqliteLane(path, queues, durable=durable) for path in paths]
                    for row in compare(lanes, rounds):
                        print(
                            f"| {queues} | {level} | {statistics} | {' | '.join(row)} |", flush=True
                        )
            for path in paths:
                path.unlink()


if __name__ == "__main__":
    main()
