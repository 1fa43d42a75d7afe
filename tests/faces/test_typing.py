"""E7: a type checker flags a wrong call before it runs, with mypy strict and with pyright."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "typing"
ROOT = Path(__file__).parents[2]


def mypy(*files: Path) -> set[tuple[str, int]]:
    done = run("mypy", "--strict", "--output=json", "--warn-unused-ignores", *map(str, files))
    found = [json.loads(line) for line in done.splitlines() if line.startswith("{")]
    return {(Path(e["file"]).name, e["line"]) for e in found if e["severity"] == "error"}


def pyright(*files: Path) -> set[tuple[str, int]]:
    # A project of its own: the main one leaves out what is wrong on purpose.
    found = json.loads(
        run("pyright", "--outputjson", "-p", str(HERE), "--pythonpath", sys.executable)
    )
    assert found["summary"]["filesAnalyzed"] == len(files)
    return {
        (Path(e["file"]).name, e["range"]["start"]["line"] + 1)
        for e in found["generalDiagnostics"]
        if e["severity"] == "error"
    }


def run(tool: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", tool, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_E7_type_checkers_see_wrong_calls(checker: object) -> None:
    assert callable(checker)
    marked = {
        ("rejected.py", number)
        for number, line in enumerate((HERE / "rejected.py").read_text().splitlines(), 1)
        if line.endswith("# no")
    }
    assert len(marked) > 10
    assert checker(HERE / "accepted.py", HERE / "rejected.py") == marked
