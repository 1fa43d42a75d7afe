"""Hunting planted bugs: which mutants of tests/mutants do programs find, on which engine.

Each hunt is a process of its own, since a mutant is planted once and for all. A mutant is killed by
whatever program fails on it; one that shows only when transactions overlap lives on, since here
nobody comes between.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests import database as databases
from tests import servers
from tests.model import run
from tests.mutants.mutant import SQLITE, plant
from tests.mutants.mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
RUN = "TOWLINE_MODEL_RUN"  # the folder of the run that a hunt belongs to


@dataclass
class Hunt:
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


def hunt(name: str, database: str, programs: int, seed: int, *, shrink: bool = False) -> Hunt:
    """Plant a mutant in this process, and run programs on it until one fails."""
    if folder := os.environ.get(RUN):
        servers.join_run(Path(folder))
    if name:
        plant(MUTANTS[name])
    found = None
    with run.opened([database]) as world:
        try:
            run.run(world, programs, seed, shrink=shrink)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        return Hunt(name, database, found, world.coverage.programs, world.coverage.steps)


def sent(name: str, database: str, programs: int, seed: int, *, shrink: bool = False) -> Hunt:
    """The same in a process of its own."""
    command = [
        sys.executable, "-m", "tests.model", "--mutant", name, "--on", database,
        "--programs", str(programs), "--seed", str(seed), *["--shrink"] * shrink,
    ]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, RUN: str(servers.run_folder())},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return Hunt(**json.loads(done.stdout.splitlines()[-1]))


def report(programs: int, seed: int) -> Iterator[Hunt]:
    """Every mutant on every engine it can be planted in."""
    for mutant in MUTANTS.values():
        for engine in mutant.engines:
            database = databases.SQLITE if engine == SQLITE else databases.newest()
            yield sent(mutant.name, database, programs, seed)


def as_line(hunt: Hunt) -> str:
    return json.dumps(asdict(hunt))
