"""The whole store against a small model, the same programs on both engines.

`python -m tests.model --programs N --seed S` runs more; `--mutants` says which bugs it finds.
"""

from __future__ import annotations

import pytest

from tests import database as databases
from tests.model import hunt, run

PROGRAMS = 44
# Every kind of operation that a program may contain; each must have been drawn.
VERBS = {
    "begin", "cancel", "claim", "commit", "complete", "delete", "enqueue", "expired", "fail",
    "finish", "park", "pause", "progress", "prune", "register", "renew", "retry", "rollback",
    "savepoint", "sweep", "time moves back", "time moves on", "turn",
}  # fmt: skip
QUICK = ("no fence", "attempt counted at the end", "sweep without state test")


@pytest.mark.timeout(600)
def test_both_engines_do_what_the_model_does() -> None:
    """E1, C1–C5, B1–B6, D1–D3, S1–S2, L1–L8, O1–O3, O10, K1–K4, R1, R3–R4."""
    with run.opened(run.both()) as world:
        coverage = run.run(world, PROGRAMS, 1)
    assert coverage.programs >= PROGRAMS
    assert set(coverage.verbs) >= VERBS


@pytest.mark.timeout(300)
@pytest.mark.parametrize("database", [databases.SQLITE, databases.newest()])
@pytest.mark.parametrize("mutant", QUICK)
def test_the_model_finds_planted_bugs(mutant: str, database: str) -> None:
    assert hunt.sent(mutant, database, PROGRAMS, 1).found is not None


@pytest.mark.timeout(300)
def test_it_says_which_program_and_shrinks_it() -> None:
    found = hunt.sent("no fence", databases.SQLITE, PROGRAMS, 1, shrink=True)
    assert found.found is not None
    assert "differs from the model" in found.found
