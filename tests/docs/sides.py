"""A guide that leads here from another queue: a program for each side, and what they print.

A block whose first line is a file's name is that file; every other belongs to the part whose
heading stands above it. Each part is a process of its own; they share the files, and servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.docs.blocks import ROOT, run

GUIDES = ROOT / "docs" / "guides" / "move"
PARTS = ("Before", "After", "Both in one program", "Draining the old one")

_PART = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PYTHON = re.compile(r"^```python\n(?:# (\w+\.py)\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)
_TEXT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def printed(page: Path, folder: Path, names: Mapping[str, str] | None = None) -> dict[str, str]:
    """Run a guide in a folder; what each part printed. `names` replaces what is only on paper."""
    text = page.read_text("utf-8")
    for name, real in (names or {}).items():
        assert name in text, name
        text = text.replace(name, real)
    programs = {}
    for part, content in _PART.findall(text):
        blocks = _PYTHON.findall(content)
        for name, block in blocks:
            if name:
                (folder / name).write_text(block, "utf-8")
        if part in PARTS:
            programs[part] = "\n".join(block for name, block in blocks if not name)
    assert tuple(programs) == PARTS, f"{page.name} has other parts: {list(programs)}"
    return {part: run(program, folder) for part, program in programs.items()}


def shown(page: Path) -> str:
    """What the guide says that both sides print."""
    (text,) = _TEXT.findall(page.read_text("utf-8"))
    return str(text)
