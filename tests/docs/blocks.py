"""The code blocks of a page, as a program that runs them in order.

Python, console and SQL run, what they print is compared with `output`; TOML, YAML, JSON and INI are
parsed; a block that begins with `# name.py` is saved under that name. One that can do neither says
why in the line before it: `<!-- not run: why -->`. `text` is for people.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

RUN = frozenset({"python", "console", "sql", "output"})
PARSED = frozenset({"toml", "yaml", "json", "ini"})
PROSE = frozenset({"text"})

_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<excuse>.+?) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml|yaml|yml|ini|sql))\n")


class Block(NamedTuple):
    language: str
    text: str
    excuse: str | None  # why it is not run

    @property
    def file(self) -> str | None:
        """The name that its first line says it is saved under."""
        found = _FILE.match(self.text)
        return found and found[1]


def blocks_of(page: Path) -> list[Block]:
    found = _BLOCK.finditer(page.read_text("utf-8"))
    return [Block(each["language"], each["text"], each["excuse"]) for each in found]


def program_of(page: Path, names: Mapping[str, str] | None = None, admin: str = "") -> str:
    """Python as it stands; commands and SQL, by a superuser where one is given, each at its place.
    `names` replaces what only exists on paper."""
    lines = [
        "import sys",
        f"sys.path.append({str(ROOT)!r})",
        "from tests.docs import stage as _stage",
        "_stage.begin()",
    ]
    for block in blocks_of(page):
        if block.excuse or (block.language not in RUN and not block.file):
            continue
        text = block.text
        for name, real in (names or {}).items():
            text = text.replace(name, real)
        if block.file:
            lines.append(f"_stage.save({block.file!r}, {text!r})")
        elif block.language == "python":
            lines.append(text)
        elif block.language == "sql":
            lines.append(f"_stage.sql({text!r}, {admin!r})")
        else:
            lines.append(f"_stage.{block.language}({text!r})")
    return "\n".join([*lines, ""])


def run(program: str, folder: Path) -> str:
    """Run it in a folder of its own; a warning is an error. Returns what it printed."""
    path = folder / "page.py"
    path.write_text(program, "utf-8")
    return start([path.name], folder)


def start(words: list[str], folder: Path) -> str:
    """Run Python with these words; returns what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
