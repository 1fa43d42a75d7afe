"""The tree drawn at the top of errors.py is the tree of the classes below it.

The drawing is what a user reads to decide what to catch, so it may not fall behind.
"""

import ast
import re

import pytest

from tests.shape.source import PACKAGE, Module, complain

# A drawn line holds one class name, perhaps behind box-drawing strokes, perhaps followed by a
# remark in brackets or after two spaces. Anything else is prose.
DRAWN = re.compile(r"^(?P<indent>[\s│├└─|`+-]*)(?P<name>[A-Z]\w*)(?:\s*\(.*\)|\s{2,}\S.*)?\s*$")

# (class, class it derives from); the second is None for the root.
Edge = tuple[str, str | None]


@pytest.fixture
def errors() -> Module:
    return Module(PACKAGE / "errors.py")


def test_the_drawn_errors_are_the_defined_errors(errors: Module) -> None:
    in_drawing, in_code = drawn(errors), defined(errors)
    complain(
        [f"drawn but not defined: {show(edge)}" for edge in sorted(in_drawing - in_code, key=str)]
        + [f"defined but not drawn: {show(edge)}" for edge in sorted(in_code - in_drawing, key=str)]
    )


def test_the_errors_have_one_root(errors: Module) -> None:
    assert [name for name, base in defined(errors) if base is None] == ["TowlineError"]


def drawn(module: Module) -> set[Edge]:
    edges: set[Edge] = set()
    above: list[tuple[int, str]] = []
    for line in (ast.get_docstring(module.tree) or "").splitlines():
        found = DRAWN.match(line)
        if found is None:
            continue
        column, name = found.start("name"), found["name"]
        while above and above[-1][0] >= column:
            above.pop()
        edges.add((name, above[-1][1] if above else None))
        above.append((column, name))
    return edges


def defined(module: Module) -> set[Edge]:
    classes = [node for node in module.tree.body if isinstance(node, ast.ClassDef)]
    names = {node.name for node in classes}
    edges: set[Edge] = set()
    for node in classes:
        # Bases from elsewhere (LookupError, Generic[T]) are not part of the drawing.
        bases = names & {ast.unparse(base) for base in node.bases}
        edges.update((node.name, base) for base in bases)
        if not bases:
            edges.add((node.name, None))
    return edges


def show(edge: Edge) -> str:
    name, base = edge
    return f"{name} under {base}" if base else f"{name} at the root"
