"""A test of the tests: each planted bug is noticed by the suite, for the reason it should be.

A mutant is a library that still works as long as nothing happens to it: ALIVE passes. Its killers
fail, in an assertion of their own rather than in an accident on the way. That they pass on the
library as it is, the suite says by itself.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from tests import database as databases
from tests import servers
from tests.mutants.mutant import POSTGRES, SQLITE, Edit, Misfit, Mutant, edited, planted
from tests.mutants.mutants import MUTANTS
from tests.speed import by_speed
from towline.sql import read_text

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "tests/mutants/README.md"
ALIVE = (
    "conformance/test_blocker.py::test_B1_outputs_arrive_in_declared_order_on_every_attempt"
    "[{database}: ours, blocking]",
)
ENGINES = (SQLITE, POSTGRES) if servers.servers() else (SQLITE,)


def cases() -> Iterator[tuple[Mutant, str]]:
    """Every mutant, on the engine that kills it soonest; in a proof on each that can have it."""
    for mutant in MUTANTS.values():
        engines = [engine for engine in ENGINES if engine in mutant.engines]
        yield from ((mutant, engine) for engine in engines[: by_speed(1, None)])


@pytest.mark.parametrize(
    ("mutant", "engine"),
    [pytest.param(*case, id=f"{case[0].name} on {case[1]}") for case in cases()],
)
def test_the_suite_kills(mutant: Mutant, engine: str, tmp_path: Path) -> None:
    database = databases.SQLITE if engine == SQLITE else databases.newest()
    alive = [f"tests/{test.format(database=database)}" for test in ALIVE]
    killers = [f"tests/{test.format(database=database)}" for test in mutant.killers]
    with planted(mutant):
        code, ends, output = run_tests([*alive, *killers], tmp_path)
    assert set(ends) == {*alive, *killers}, output
    assert [ends[test] for test in alive] == [None] * len(alive), output
    for killer in killers:
        error = ends[killer] or "it lives"
        assert error.startswith("AssertionError: "), output
        assert mutant.sign in error, output
    assert code == pytest.ExitCode.TESTS_FAILED, output


class Ends:
    """A plugin for pytest that notes what became of each test."""

    def __init__(self) -> None:
        self.errors: dict[str, str | None] = {}  # the first that it ended with, None if it passed

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Iterator[None]:
        error = None
        if call.excinfo is not None:
            where = "" if call.when == "call" else f"{call.when}: "
            error = f"{where}{call.excinfo.typename}: {call.excinfo.value}"
        self.errors[item.nodeid] = self.errors.get(item.nodeid) or error
        return (yield)


def run_tests(tests: list[str], folder: Path) -> tuple[int, dict[str, str | None], str]:
    """Run tests by a pytest within this process, which shares what is imported and the servers.

    Back come its exit code, the error of each test (None: it passed), and what it printed.
    """
    ends = Ends()
    left_alone = (
        "cacheprovider", "xdist", "hypothesispytest", "faulthandler", "unraisableexception",
        "threadexception",
    )  # fmt: skip
    arguments = [
        "-vv", "--tb=short", "-s", f"--rootdir={ROOT}", f"--basetemp={folder / 'inner'}",
        *[word for name in left_alone for word in ("-p", f"no:{name}")],
        "-o", "timeout=0",  # that of the test which runs them counts
        *[str(ROOT / test) for test in tests],
    ]  # fmt: skip
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(output):
        code = pytest.main(arguments, plugins=[ends])
    return code, ends.errors, output.getvalue()[-8000:]


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
