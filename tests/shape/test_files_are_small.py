"""Files are small, named after what they hold, and say at the top what they are for."""

import ast
import re
from pathlib import Path

from tests.shape.source import PACKAGE, ROOT, complain, files, folders, modules

LINES = 450

# Names under which anything can be put, and therefore everything is.
NAMELESS = frozenset({"util", "helper", "manager", "core", "common", "misc"})

# Code of others, kept exactly as it came.
VENDORED = frozenset({"vendor", "vendored"})


def test_no_file_is_long() -> None:
    complain(
        [
            f"{path.relative_to(ROOT)}: {count} lines; past {LINES} a file wants to be two things"
            for path in ours()
            if path.suffix != ".sql" and (count := length(path)) > LINES
        ]
    )


def test_every_file_and_folder_is_named_after_what_it_holds() -> None:
    complain(
        [
            f"{path.relative_to(ROOT)}: {path.stem!r} tells nothing; name it after what it holds"
            for path in [*ours(), *folders()]
            if any(word.removesuffix("s") in NAMELESS for word in words(path))
        ]
    )


def test_every_module_opens_with_a_docstring() -> None:
    complain(
        [
            f"{module.at(1)}: open with a docstring: what it is for, what it leaves to others"
            for module in modules()
            if not ast.get_docstring(module.tree)
        ]
    )


def ours() -> list[Path]:
    return [path for path in files() if not VENDORED & set(path.relative_to(PACKAGE).parts)]


def words(path: Path) -> list[str]:
    return re.split(r"[^a-z0-9]+", path.stem.lower())


def length(path: Path) -> int:
    """Lines of a text file; pictures and fonts have none."""
    content = path.read_bytes()
    return 0 if b"\0" in content else len(content.splitlines())
