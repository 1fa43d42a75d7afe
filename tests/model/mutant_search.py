"""Searching for planted bugs: which mutants of tests/mutants do programs find, on which engine.

A mutant is killed by whatever program fails on it; one that shows only when transactions overlap
lives on, since here nobody comes between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests import database as databases
from tests.model import run
from tests.mutants.mutant import SQLITE, planted
from tests.mutants.mutants import MUTANTS


@dataclass
class Search:
    """What became of a mutant: how it showed, or None; and after how much."""

    mutant: str
    database: str
    found: str | None
    programs: int
    steps: int

    def __str__(self) -> str:
        end = f"killed: {self.found.splitlines()[0]}" if self.found else "lives"
        return (
            f"{self.mutant} on {self.database}, after {self.programs} programs, "
            f"{self.steps} steps: {end}"
        )


def search(name: str, database: str, programs: int, seed: int, *, shrink: bool = False) -> Search:
    """Plant a mutant in this process, and run programs on it until one fails."""
    found = None
    with planted(MUTANTS[name]), run.opened([database]) as world:
        try:
            run.run(world, programs, seed, shrink=shrink)
        except Exception as error:
            # In a group if the program does not fail each time.
            first = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
            found = f"{type(first).__name__}: {first}"
        return Search(name, database, found, world.coverage.programs, world.coverage.steps)


def report(programs: int, seed: int) -> Iterator[Search]:
    """Every mutant on every engine it can be planted in."""
    for mutant in MUTANTS.values():
        for engine in mutant.engines:
            database = databases.SQLITE if engine == SQLITE else databases.newest()
            yield search(mutant.name, database, programs, seed)
