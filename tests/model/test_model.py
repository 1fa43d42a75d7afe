"""The whole store against a small model, the same programs on both engines.

`python -m tests.model --programs N --seed S` runs more and says what they did; `--mutants` says
which planted bugs they find.
"""

from __future__ import annotations

import re
from itertools import product

import pytest

from tests.model import mutant_search, run
from tests.model.engine_driver import EngineDriver
from tests.speed import by_speed, seed
from towline.store import Store
from towline.store.flow import Flow

PROGRAMS = by_speed(4, 110)
HUNTED = 36  # programs at most until a planted bug is found
MISSED = by_speed(4, 0)  # of all this, what so few programs may not have come to
# What programs did, and to which rules of the model they came: else they would say little. What is
# rare is not asked for, since other constants in our code make hypothesis draw other programs.
VERBS = {
    "begin", "bulk", "cancel", "chains", "claim", "commit", "complete", "delete", "drop_orphans",
    "enqueue", "expired", "fail", "finish", "fire", "jobs", "look", "mark_begun", "park", "parked",
    "pause", "peek", "progress", "prune", "register", "renew", "retry", "rollback", "runs",
    "savepoint", "set_limit", "set_schedule", "sweep", "time moves back", "time moves on", "turn",
    "unregister",
}  # fmt: skip
BRANCHES = {
    "a tick fired", "came too late", "claimed in its lane", "kept waiting by a limit", "lined up",
    "began at repeatable read", "began at serializable", "begun", "blocked again",
    "cancelled refused",
    "claim of a worker that is gone", "claimed", "claimed ahead",
    "completed accepted", "completed refused", "continued accepted", "continued refused",
    "deleted a chain", "failed by its blocker", "failed from outside while blocked",
    "failed refused", "key held by a chain", "key taken", "lost accepted", "lost refused",
    "over: completed", "over: continued", "promoted", "refused: another worker has its number",
    "released refused", "reopened blocked",
    "reopened pending", "stored blocked", "stored pending", "stored scheduled",
    "stored with an old snapshot",
    "swept before it began", "timeout accepted", "timeout refused", "unblocked, pending",
    "unregistered",
}  # fmt: skip
# What a caller with an old snapshot asked for, and was refused.
REFUSED = {f"{verb}: WrongIsolation" for verb in ("cancel", "complete", "fail", "finish", "retry")}
# The quickest to be found.
QUICK = ("attempt counted at the end", "no fence", "sweep without state test")
OF_POSTGRES = ("ending with an old snapshot",)
HUNTS = [
    *by_speed([(QUICK[1], run.both()[0])], [*product(QUICK, run.both())]),
    *((mutant, database) for mutant in OF_POSTGRES for database in run.both()[1:]),
]


@pytest.mark.timeout(600)
def test_both_engines_do_what_the_model_does() -> None:
    """E1, E4, E12, C1–C5, B1–B6, B8, D1–D4, S1–S2, L1–L8, O1–O3, O9–O10, K1–K4, R1–R4; N1, N4–N7,
    G1–G4, Y1–Y3."""
    with run.opened(run.both()) as world:
        coverage = run.run(world, PROGRAMS, seed(3))
    assert coverage.programs >= PROGRAMS
    missed = (BRANCHES - coverage.seen.keys()) | (REFUSED - coverage.refusals.keys())
    missed |= VERBS - coverage.verbs.keys()
    assert len(missed) <= MISSED, missed


def test_every_operation_of_the_store_is_a_verb() -> None:
    """An operation that is new in the store is missed here until programs have it."""
    known = {name for name in dir(EngineDriver) if not name.startswith("_")}
    elsewhere = {
        "attempts",
        "attempts_of",
        "blockers",
        "chain",
        "counts",
        "dependents",
        "failures",
        "graph",
        "job",
        "needed",
        "paused",
        "running",
        "stats",
        "target",
        "why",
        "workers",
    }  # fmt: skip - asked under another name, by each dump, or made of what those ask
    # Programs give no names, so there are no lines to compare; the driver's `audit` is its own.
    nameless = {"note"}
    # Programs do not have this one: tests/conformance/test_change.py.
    by_hand = {"prune_by"}
    # Made of these, or declarations and other numbers: tests/conformance.
    of_flow = {
        "bad_members", "cancel_members", "chain_ends", "change", "declare", "declare_limits",
        "failed_members", "glance", "group", "lanes", "limits", "members", "rerun",
        "resize", "schedule", "schedules",
    }  # fmt: skip
    assert operations() - known == elsewhere | nameless | by_hand | of_flow


def operations() -> set[str]:
    """What the store offers: its pages hold operations and nothing else."""
    return {name for page in (Store, Flow) for name in vars(page) if not name.startswith("_")}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("mutant", "database"), HUNTS)
def test_programs_find_planted_bugs(mutant: str, database: str) -> None:
    found = mutant_search.search(mutant, database, HUNTED, 1).found
    assert found is not None
    assert found.startswith(f"AssertionError: {database} d")  # differs, or does not mark


@pytest.mark.timeout(300)
def test_a_program_that_finds_one_is_shrunk_to_what_it_takes() -> None:
    """A claim is enough: by a worker that is there or by a new one, in a transaction or not."""
    found = mutant_search.search(
        "attempt counted at the end", run.both()[0], HUNTED, 1, shrink=True
    ).found
    assert found is not None
    steps = re.findall(r"^ *\d+ (\w+)\(", found, re.MULTILINE)
    assert steps[:2] == ["register", "enqueue"]
    assert steps[-1] in ("claim", "turn"), found
    assert set(steps[2:-1]) <= {"register", "begin"}, found
