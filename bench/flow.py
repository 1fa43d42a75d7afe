"""Limits, lanes, schedules and groups: what they cost, beside what they promise to cost at most.

    python -m bench.flow                      both engines, about half an hour on a quiet machine
    python -m bench.flow --engine sqlite --only lanes --rounds 5
    python -m bench.flow --short              to see that it runs: its figures say nothing

Every figure is a ratio inside one run, but for the times of ticks and the idle processor. Each row
is a line of JSON; the table in the end has the floor of each and whether it was reached.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench import flow_rows as rows
from bench import record
from bench.record import Record
from bench.revisions import databases
from tests.servers import MissingServer

RECORDS = Path(__file__).resolve().parent / ".records"
ENGINES = ("sqlite", "postgres")


class Size(NamedTuple):
    """How much is measured."""

    rounds: int
    many: int  # laned jobs
    lanes: int
    jobs: int  # of a drain
    seconds: float


FULL = Size(3, 1_000_000, 10_000, 10_000, 60.0)
SHORT = Size(1, 5_000, 200, 500, 2.0)


class Goal(NamedTuple):
    """A figure and what it must reach: at least, or at most; None: no floor on that engine."""

    figure: str
    text: str
    least: dict[str, float] | float | None = None
    most: dict[str, float] | float | None = None

    def bound(self, engine: str) -> tuple[str, float] | None:
        for sign, given in (("≥", self.least), ("≤", self.most)):
            value = given.get(engine) if isinstance(given, dict) else given
            if value is not None:
                return sign, value
        return None


LANED = {"sqlite": 4.0, "postgres": 3.5}
GOALS = (
    Goal("unused_enqueue", "enqueue, feature unused, by the revision before it", 0.98),
    Goal("unused_drain", "drain, feature unused, by the revision before it", 0.98),
    Goal("beside_8", "plain turn of 8 beside 1M laned jobs", 0.95),
    Goal("beside_100", "plain turn of 100 beside 1M laned jobs", 0.95),
    Goal("laned_8", "laned turn of 8, per job, by a plain one", most=LANED),
    Goal("laned_100", "laned turn of 100, per job, by a plain one", most=LANED),
    Goal("many_8", "turn of 8: 1M jobs, 10,000 lanes by 20,000 jobs, 100 lanes", most=1.2),
    Goal("many_100", "turn of 100: the same", most=1.2),
    Goal("closed", "look at 10,000 closed lanes by a plain turn of 8", most=0.2),
    Goal("queue_limit", "queue limit that never binds, 4 workers, 50 ms, by none", 0.9),
    Goal("lane_drain", "drain of no-ops in lanes, 3 workers, by plain", {"postgres": 0.3}),
    Goal("enqueue", "plain enqueue by one into an open lane", 0.65),
    Goal("tick_p50_ms", "tick to start on an idle worker, p50 in ms", most=2),
    Goal("tick_p99_ms", "tick to start on an idle worker, p99 in ms", most=20),
    Goal("group_drain", "drain of a group of 10,000 by plain", {"sqlite": 0.75, "postgres": 0.3}),
    Goal("chunk", "items in chunks of 500 by as many jobs, 1 ms", 20),
    Goal("idle_percent", "idle CPU in percent, 10,000 schedules and lanes", most=0.3),
)  # fmt: skip


def parts(
    engine: str, size: Size, new: rows.New, folder: Path
) -> dict[str, Callable[[], rows.Figures]]:
    rounds, short = size.rounds, size is SHORT
    return {
        "unused": lambda: rows.unused(engine, rounds, folder, short),
        "lanes": lambda: rows.in_lanes(new, rounds, size.many),
        "closed": lambda: rows.closed_lanes(new, rounds, size.lanes),
        "limit": lambda: rows.queue_limit(new, rounds, min(size.jobs, 4_000)),
        "drain": lambda: rows.lane_drain(new, rounds, size.jobs),
        "enqueue": lambda: rows.enqueue(new, rounds, min(size.jobs, 200)),
        "ticks": lambda: rows.ticks(new, size.seconds),
        "group": lambda: rows.group_drain(new, rounds, size.jobs),
        "chunk": lambda: rows.chunk(new, rounds, min(size.jobs, 5_000)),
        "idle": lambda: rows.idle(new, size.lanes, size.seconds),
    }  # fmt: skip


def main() -> int:
    names = list(parts("sqlite", SHORT, str, Path()))
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m bench.flow", None, __doc__, formatter_class=raw)
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--only", choices=names, action="append")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the records are added")
    options = parser.parse_args()
    size = SHORT if options.short else FULL
    if options.rounds:
        size = size._replace(rounds=options.rounds)
    out: Path = options.out or RECORDS / f"flow-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    taken: list[Record] = []
    for engine in options.engine or ENGINES:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="towline-flow-")))
            try:
                new = stack.enter_context(databases(engine, folder))
            except MissingServer as error:
                print(f"{engine} is left out: {error}", file=sys.stderr)
                continue
            for name, measure in parts(engine, size, new, folder).items():
                if options.only and name not in options.only:
                    continue
                made = measured(engine, name, measure, folder)
                record.append(out, made)
                taken.append(made)
    Console().print(table(taken))
    print(f"recorded in {out}")
    return 1 if any(made.error for made in taken) else 0


def measured(engine: str, name: str, measure: Callable[[], rows.Figures], folder: Path) -> Record:
    made = Record(scenario="flow", engine=engine, system="towline", parameters={"part": name},
                  when=record.now(), noise=record.noise(folder))  # fmt: skip
    began = time.monotonic()
    try:
        made.figures = measure()
    except Exception as error:  # the others shall still run
        made.error = f"failed: {type(error).__name__}: {error}"
    made.seconds = time.monotonic() - began
    figures = "  ".join(f"{key} {value:.2f}" for key, value in made.figures.items())
    print(f"{engine:9}{name:9}{made.seconds:5.0f} s  {made.error or figures}",
          file=sys.stderr, flush=True)  # fmt: skip
    return made


def table(taken: list[Record]) -> Table:
    """The floors, the figures, and whether they were reached."""
    shown = Table("figure", "engine", "floor", "found", "reached", title="flow")
    figures = {(made.engine, name): value for made in taken for name, value in made.figures.items()}
    for goal in GOALS:
        for engine in ENGINES:
            value = figures.get((engine, goal.figure))
            if value is None:
                continue
            bound = goal.bound(engine)
            reached = ""
            if bound is not None:
                sign, limit = bound
                reached = "yes" if (value >= limit if sign == "≥" else value <= limit) else "NO"
            floor = f"{bound[0]} {bound[1]:g}" if bound else "–"
            shown.add_row(goal.text, engine, floor, f"{value:.3g}", reached)
    return shown


if __name__ == "__main__":
    sys.exit(main())
