"""Starting costs what is imported: counted, since time is the machine's.

What is listed here is imported by `from towline import Towline`, and by the command line before it
knows its command. Everything else (sqlite3, psycopg, asyncio, rich, the worker) is fetched where it
is used. Who needs another one at the start says why, here and in design/013.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Of the standard library and of msgspec, over a bare interpreter; private modules go with theirs.
LIBRARY = {
    "__future__", "ast", "atexit", "bisect", "collections", "concurrent", "contextlib",
    "contextvars", "copy", "copyreg", "datetime", "decimal", "dis", "enum", "errno", "fnmatch",
    "functools", "glob", "grp", "heapq", "importlib", "inspect", "ipaddress", "itertools", "json",
    "keyword", "linecache", "logging", "math", "msgspec", "ntpath", "numbers", "opcode", "operator",
    "pathlib", "platform", "pwd", "queue", "random", "re", "reprlib", "string", "textwrap",
    "threading", "token", "tokenize", "towline", "traceback", "types", "typing",
    "typing_extensions", "unicodedata", "urllib", "uuid", "warnings", "weakref",
}  # fmt: skip
# Besides those, what click brings, and what a command may say of its target.
COMMAND_LINE = LIBRARY | {
    "array", "click", "dataclasses", "difflib", "fcntl", "getpass", "gettext", "locale", "select",
    "selectors", "signal", "socket", "subprocess", "sysconfig", "termios",
}  # fmt: skip

# Modules of ours: each is a file to find and to read, 0.2 ms.
OURS = {"towline": 86, "towline.cli.commands": 128}

LOOK = """
import json, sys
before = set(sys.modules)
exec(sys.argv[1])
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported(text: str, folder: Path) -> set[str]:
    """Modules that a text imports in an interpreter of its own."""
    child = subprocess.run(
        [sys.executable, "-c", LOOK, text], cwd=folder, check=True, capture_output=True, text=True
    )
    return set(json.loads(child.stdout))


@pytest.mark.parametrize(
    ("text", "allowed", "most"),
    [
        ("from towline import Towline", LIBRARY, OURS["towline"]),
        ("import towline.cli.commands", COMMAND_LINE, OURS["towline.cli.commands"]),
    ],
    ids=["library", "command line"],
)
def test_few_modules_are_imported_at_the_start(
    tmp_path: Path, text: str, allowed: set[str], most: int
) -> None:
    found = imported(text, tmp_path)
    packages = {name.partition(".")[0] for name in found}
    more = {name for name in packages - allowed if not name.startswith("_")}
    assert not more, f"also imported at the start: {sorted(more)}"
    ours = [name for name in found if name.startswith("towline")]
    assert len(ours) <= most, sorted(ours)


def test_the_package_itself_imports_nothing_outside(tmp_path: Path) -> None:
    """`import towline`, as a plug-in or a version check does it."""
    found = imported("import towline", tmp_path)
    assert {name for name in found if name.startswith("towline")} == {"towline", "towline.version"}
    assert "msgspec" not in found
