"""The files of the package as text and syntax trees, for the tests that judge their shape.

Nothing here imports towline: a module that fails to import still has a shape.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "towline"


@dataclass(frozen=True)
class Module:
    """One Python file of the package; `name` is dotted, without the leading `towline.`."""

    path: Path

    @cached_property
    def parts(self) -> tuple[str, ...]:
        parts = self.path.relative_to(PACKAGE).with_suffix("").parts
        return parts[:-1] if parts[-1] == "__init__" else parts

    @property
    def name(self) -> str:
        return ".".join(self.parts) or "__init__"

    @property
    def package(self) -> tuple[str, ...]:
        """The folder that relative imports of this module start from."""
        return self.path.relative_to(PACKAGE).parts[:-1]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_bytes(), filename=str(self.path))

    def at(self, line: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{line}"


def modules() -> list[Module]:
    return [Module(path) for path in files() if path.suffix == ".py"]


def files() -> list[Path]:
    return sorted(path for path in _walk(PACKAGE) if path.is_file())


def folders() -> list[Path]:
    return sorted(path for path in _walk(PACKAGE) if path.is_dir())


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if "__pycache__" not in path.parts:
            yield path


def complain(complaints: list[str]) -> None:
    """Fail with every complaint at once, so that one run shows all there is to mend."""
    assert not complaints, "\n" + "\n".join(complaints)
