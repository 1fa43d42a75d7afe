"""The README's code blocks run, in order, in an empty folder, and its first minute literally."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import ROOT, program_of, run

PAGE = ROOT / "README.md"
_FILE = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ \.venv/bin/((?:python|towline) [^#\n]*)", re.MULTILINE)


def saved(folder: Path) -> dict[str, str]:
    """The files that the README tells to write, written."""
    files = dict(_FILE.findall(PAGE.read_text("utf-8")))
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return files


def test_the_readme_runs(tmp_path: Path) -> None:
    saved(tmp_path)
    program = program_of(PAGE)
    assert "enqueue_many" in program
    run(program, tmp_path)


def test_W3_the_first_minute_works_as_it_is_written(tmp_path: Path) -> None:
    """Finding W3: each file saved under its name, each command as it stands."""
    assert list(saved(tmp_path)) == ["shop.py", "order.py"]
    commands = _COMMAND.findall(PAGE.read_text("utf-8"))
    assert [words.split()[:2] for words in commands] == [
        ["python", "order.py"],
        ["towline", "worker"],
        ["towline", "jobs"],
    ]
    shown = ""
    for command in commands:
        program, *words = command.split()
        start = [] if program == "python" else ["-m", "towline"]
        done = subprocess.run(
            [sys.executable, "-W", "error", *start, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        shown = done.stdout
    assert "completed" in shown
