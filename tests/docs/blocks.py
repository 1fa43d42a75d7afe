"""The code blocks of a page, as a program that runs them in order."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(r"^```(python|sql)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def program_of(page: Path, names: Mapping[str, str] | None = None, admin: str = "") -> str:
    """Python as it stands; SQL by a superuser, each block at its place. `names` replaces what only
    exists on paper."""
    lines = ["from psycopg import connect as _connect"] if admin else []
    for language, text in _BLOCK.findall(page.read_text("utf-8")):
        for name, real in (names or {}).items():
            text = text.replace(name, real)
        if language == "python":
            lines.append(text)
        else:
            lines.append(
                f"with _connect({admin!r}, autocommit=True) as _admin:\n"
                f"    _admin.execute({text!r})"
            )
    return "\n".join(lines)


def run(program: str, folder: Path) -> str:
    """Run it in a folder of its own; a warning is an error. Returns what it printed."""
    path = folder / "page.py"
    path.write_text(program, "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", path.name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
