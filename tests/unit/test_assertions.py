"""A test that fails says why, wherever its assertion stands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from tests import brokers, cluster, database, kit, servers
from tests.sqlite import processes
from tests.worker import gate


def test_an_assertion_in_a_shared_module_shows_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "run", lambda *_: "1\n2")
    with pytest.raises(AssertionError, match=r"assert 2 == 3\n +\+ +where 2 = len\(\['1', '2'\]\)"):
        processes.together(3, "", Path())


def test_every_module_of_the_tests_is_read_so() -> None:
    assert {brokers, cluster, database, kit, servers, processes, gate} <= set(sys.modules.values())
    modules = [module for name, module in sys.modules.items() if name.startswith("tests.")]
    plain = [
        module.__name__
        for module in modules
        if module.__spec__
        and module.__spec__.has_location
        and not isinstance(module.__spec__.loader, AssertionRewritingHook)
    ]
    assert plain == []


def test_what_a_child_said_before_it_died_is_shown(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"it ended with 1 and said:\n +I am ill"):
        processes.run("sys.exit('I am ill')", tmp_path / "app.db")
