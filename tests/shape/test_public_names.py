"""What `import towline` offers is a decision, and costs little."""

import json
import subprocess
import sys

import towline
from tests.shape.source import PACKAGE, ROOT

# Adding a name here is a promise to keep it; taking one away belongs in CHANGELOG.md.
PUBLIC = {
    "Backoff",
    "BlockerError",
    "Call",
    "Cancel",
    "Chain",
    "ChainCancelled",
    "ChainFailed",
    "ChainState",
    "Context",
    "Cron",
    "Defaults",
    "DuplicateKey",
    "Fail",
    "Failure",
    "INJECTED",
    "InvalidArguments",
    "InvalidState",
    "Job",
    "Next",
    "NotFound",
    "Outcome",
    "Retry",
    "Secret",
    "Snooze",
    "State",
    "StoreUnavailable",
    "Task",
    "Tasks",
    "WaitTimeout",
    "Towline",
    "TowlineError",
    "context",
}

MOST = 32

# Needed by some programs that use towline, not by all: loaded when first used.
LAZY = {"click", "cronsim", "msgspec", "rich"}


def test_the_public_names_are_pinned() -> None:
    assert set(towline.__all__) == PUBLIC


def test_the_public_names_are_few() -> None:
    assert len(towline.__all__) == len(set(towline.__all__)) <= MOST


def test_every_public_name_is_there() -> None:
    assert [name for name in towline.__all__ if not hasattr(towline, name)] == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists(), "type checkers ignore the annotations without py.typed"


def test_importing_the_package_loads_no_dependency() -> None:
    # A fresh interpreter: in this one the other tests have loaded everything.
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, json, towline; print(json.dumps([*sys.modules]))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert LAZY & set(json.loads(loaded)) == set()
