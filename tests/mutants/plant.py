"""A plugin for pytest, `-p tests.mutants.plant`: plants the mutant that the environment names.

It shares the servers of the run that started it, and reports what became of each test. Processes
that a test starts are not planted: a killer makes its races with threads and connections.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.mutants.mutant import plant
from tests.mutants.mutants import MUTANTS

NAME = "TOWLINE_MUTANT"
RUN = "TOWLINE_MUTANT_RUN"  # the run's folder
REPORT = "TOWLINE_MUTANT_REPORT"  # a file to write

_ends: dict[str, str | None] = {}  # test → the first error it ended with, None if it passed


def pytest_configure(config: pytest.Config) -> None:
    servers.join_run(Path(os.environ[RUN]))
    if name := os.environ.get(NAME):
        plant(MUTANTS[name])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    error = None
    if call.excinfo is not None:
        where = "" if call.when == "call" else f"{call.when}: "
        error = f"{where}{call.excinfo.typename}: {call.excinfo.value}"
    _ends[item.nodeid] = _ends.get(item.nodeid) or error
    return (yield)


def pytest_sessionfinish(session: Any) -> None:
    Path(os.environ[REPORT]).write_text(json.dumps(_ends))
