"""A test of the tests: each planted bug is noticed by the suite, for the reason it should be.

A mutant is a library that still works as long as nothing happens to it: ALIVE passes. Its killers
fail, in an assertion of their own rather than in an accident on the way. That they pass on the
library as it is, the suite says by itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import database as databases
from tests import servers
from tests.mutants import plant
from tests.mutants.mutant import POSTGRES, SQLITE, Edit, Misfit, Mutant, edited
from tests.mutants.mutants import MUTANTS
from towline.sql import read_text

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "tests/mutants/README.md"
ALIVE = (
    "conformance/test_blocker.py::test_B1_outputs_arrive_in_declared_order_on_every_attempt"
    "[{database}: ours, blocking]",
)
ENGINES = (POSTGRES, SQLITE) if servers.servers() else (SQLITE,)
CASES = [(mutant, e) for mutant in MUTANTS.values() for e in ENGINES if e in mutant.engines]


@pytest.mark.parametrize(
    ("mutant", "engine"), CASES, ids=[f"{mutant.name} on {engine}" for mutant, engine in CASES]
)
def test_the_suite_kills(mutant: Mutant, engine: str, tmp_path: Path) -> None:
    database = databases.SQLITE if engine == SQLITE else databases.newest()
    alive = [f"tests/{test.format(database=database)}" for test in ALIVE]
    killers = [f"tests/{test.format(database=database)}" for test in mutant.killers]
    code, ends, output = run_tests(mutant, [*alive, *killers], tmp_path)
    assert set(ends) == {*alive, *killers}, output
    assert [ends[test] for test in alive] == [None] * len(alive), output
    for killer in killers:
        error = ends[killer] or "it lives"
        assert error.startswith("AssertionError: "), output
        assert mutant.sign in error, output
    assert code == pytest.ExitCode.TESTS_FAILED, output


def run_tests(
    mutant: Mutant, tests: list[str], folder: Path
) -> tuple[int, dict[str, str | None], str]:
    """Run tests in a process of its own in which the mutant is planted.

    Back come its exit code, the error of each test (None: it passed), and what it printed.
    """
    report = folder / "report.json"
    command = [
        sys.executable, "-m", "pytest", "-vv", "--tb=short", "-p", "tests.mutants.plant",
        "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest",
        f"--basetemp={folder / 'child'}", *tests,
    ]  # fmt: skip
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    told = {
        plant.NAME: mutant.name,
        plant.RUN: str(servers.run_folder()),
        plant.REPORT: str(report),
    }
    done = subprocess.run(
        command, cwd=ROOT, env={**kept, **told}, capture_output=True, text=True, timeout=100
    )
    output = done.stdout[-8000:] + done.stderr[-2000:]
    assert report.exists(), output
    return done.returncode, json.loads(report.read_text()), output


@pytest.mark.parametrize("engine", [POSTGRES, SQLITE])
def test_every_mutant_fits_the_text_it_changes(engine: str) -> None:
    text = read_text(f"towline.{engine}", "queries.sql")
    for mutant in MUTANTS.values():
        if edits := mutant.edits.get(engine):
            assert edited(text, edits) != text, mutant.name
    with pytest.raises(Misfit, match="has no"):
        edited(text, [Edit("end_chains", "not in there", "")])


def test_every_mutant_is_in_the_table() -> None:
    table = README.read_text()
    for mutant in MUTANTS.values():
        for killer in mutant.killers:
            name = killer.partition("::")[2].partition("[")[0]
            line = next((x for x in table.splitlines() if f"`{mutant.name}`" in x), "")
            assert f"`{name}`" in line, f"{mutant.name} and {name}"
