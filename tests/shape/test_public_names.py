"""What `import windlass` offers is a decision, and costs little."""

import json
import subprocess
import sys

import windlass
from tests.shape.source import PACKAGE, ROOT

# Adding a name here is a promise to keep it; taking one away belongs in CHANGELOG.md.
PUBLIC = {
    "Backoff",
    "BlockerError",
    "Blockers",
    "Call",
    "Cancel",
    "Chain",
    "ChainCancelled",
    "ChainFailed",
    "ChainState",
    "Context",
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
    "Snooze",
    "State",
    "StoreUnavailable",
    "Task",
    "Tasks",
    "WaitTimeout",
    "Windlass",
    "WindlassError",
    "context",
}

MOST = 32

# Needed by some programs that use windlass, not by all: loaded when first used.
LAZY = {"click", "cronsim", "msgspec", "rich"}


def test_the_public_names_are_pinned() -> None:
    assert set(windlass.__all__) == PUBLIC


def test_the_public_names_are_few() -> None:
    assert len(windlass.__all__) == len(set(windlass.__all__)) <= MOST


def test_every_public_name_is_there() -> None:
    assert [name for name in windlass.__all__ if not hasattr(windlass, name)] == []


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists(), "type checkers ignore the annotations without py.typed"


def test_importing_the_package_loads_no_dependency() -> None:
    # A fresh interpreter: in this one the other tests have loaded everything.
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, json, windlass; print(json.dumps([*sys.modules]))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert LAZY & set(json.loads(loaded)) == set()
