"""python -m tests.model --programs N --seed S: run programs and print what they did.

With --mutants: which planted bugs the programs find, on which engine.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from tests.model import mutant_search, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--programs", type=int, default=100, help="at least so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", action="append", help="a database by name; all engines if not said")
    parser.add_argument("--mutants", action="store_true", help="run on planted bugs instead")
    parser.add_argument("--mutant", help="on this one only, planted in this process")
    parser.add_argument("--shrink", action="store_true", help="a program that finds it")
    told = parser.parse_args()
    if told.mutant:
        name, database = told.mutant, (told.on or run.both())[0]
        found = mutant_search.search(name, database, told.programs, told.seed, shrink=told.shrink)
        print(found.found or "it lives")
        print(found)
    elif told.mutants:
        for found in mutant_search.report(told.programs, told.seed):
            print(found, flush=True)
    else:
        count(told.programs, told.seed, told.on or run.both())


def count(programs: int, seed: int, names: list[str]) -> None:
    begun, cpu = time.monotonic(), time.process_time()
    with run.opened(names) as world:
        coverage = run.run(world, programs, seed)
    print(
        f"{coverage.programs} programs, {coverage.steps} steps on {', '.join(names)}: "
        f"{time.monotonic() - begun:.0f} s, {time.process_time() - cpu:.0f} s of CPU here"
    )
    for title, counter in (
        ("operations", coverage.verbs),
        ("refusals", coverage.refusals),
        ("branches of the model's rules", coverage.seen),
    ):
        print(f"\n{title}")
        print_columns(counter)


def print_columns(counter: Counter[str]) -> None:
    for name, number in sorted(counter.items()):
        print(f"  {number:7} {name}")


if __name__ == "__main__":
    main()
