"""The page on Django is a project: its files are written, its commands print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "guides" / "with" / "django.md"
NOT_RUN = ("pip install",)  # that is how this environment was made
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MANAGE = ROOT / "examples" / "django_shop" / "manage.py"


def test_I2_I5_the_page_on_django_runs(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "urls.py").write_text("urlpatterns: list[object] = []\n")
    (tmp_path / "manage.py").write_text(MANAGE.read_text())
    blocks = BLOCK.findall(PAGE.read_text("utf-8"))
    for language, text in blocks:
        if language == "python":
            name = text.splitlines()[0].removeprefix("# ")
            (tmp_path / name).write_text(text)
    ran = 0
    for language, text in blocks:
        if language == "console":
            for command, *expected in commands(text):
                if not command.startswith(NOT_RUN):
                    check(command, expected, tmp_path)
                    ran += 1
    assert ran == 7


def commands(text: str) -> list[list[str]]:
    """Each command with the lines that it prints."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append([line.removeprefix("$ ")])
        else:
            found[-1].append(line)
    return found


def check(command: str, expected: list[str], folder: Path) -> None:
    program, *words = shlex.split(command, comments=True)
    assert program == "python", command
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    for line in expected:
        pattern = ".*".join(map(re.escape, line.split("…")))
        printed = done.stdout.splitlines()
        assert any(re.fullmatch(pattern, each) for each in printed), f"{command}\n{done.stdout}"
