"""The rooms of the package and who imports whom, read from the source. `make house` prints it.

A room is a top-level name: a folder with everything in it, or a file that stands for itself. The
words that everybody shares are one room.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tests.shape.source import PACKAGE, Module, modules

WORDS = frozenset(
    {
        "brief",
        "cron",
        "errors",
        "exit_codes",
        "model",
        "naming",
        "operation",
        "records",
        "schedule",
        "secret",
        "sql",
        "text",
        "ticks",
        "times",
        "version",
    }
)

# From the inside out: a room imports rooms of its own floor and of the floors before it.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("words",),
    ("task", "store"),
    ("migrate", "wakes"),
    ("connections",),
    ("engine", "executor", "sqlite", "postgres"),
    ("runner", "events", "telemetry"),
    ("app", "worker"),
    ("views", "doctor", "access"),
    ("logs", "otel", "prometheus"),
    ("cli", "dashboard", "agent", "integrations", "testing", "pytest_plugin"),
)

# The front door gathers names from every room, so it belongs to none; only what stands at the edge
# may come in through it.
DOORS = frozenset({"__init__", "__main__"})


class Import(NamedTuple):
    """One import of the package by itself, as it runs."""

    module: Module
    line: int
    room: str


def room_of(name: str) -> str:
    top = name.split(".")[0]
    return "words" if top in WORDS else top


def floor_of(room: str) -> int | None:
    if room in DOORS:
        return len(FLOORS)
    return next((number for number, rooms in enumerate(FLOORS) if room in rooms), None)


def imports() -> Iterator[Import]:
    """Every import that runs, from one room into another."""
    for module in modules():
        for line, target in _imports(module):
            if room_of(target) != room_of(module.name):
                yield Import(module, line, room_of(target))


def graph() -> dict[str, set[str]]:
    """Which rooms each room imports."""
    found: dict[str, set[str]] = {}
    for each in imports():
        found.setdefault(room_of(each.module.name), set()).add(each.room)
    return found


def drawing() -> str:
    """The graph as text: a line for each room, the innermost first."""
    found = graph()
    rooms = sorted(
        {room_of(module.name) for module in modules()} - DOORS - {""},
        key=lambda room: (floor_of(room) or 0, room),
    )
    width = max(map(len, rooms))
    lines = []
    for room in rooms:
        below = found.get(room, set()) - {"words"}
        names = sorted(below, key=lambda name: (floor_of(name) or 0, name))
        lines.append(f"{room:{width}}  {'· ' if not names else '→ '}{' '.join(names)}".rstrip(" ·"))
    return "\n".join(lines)


def _imports(module: Module) -> Iterator[tuple[int, str]]:
    """Line, and the name below `towline`."""
    for node in _running(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first, *rest = alias.name.split(".")
                if first == "towline":
                    yield node.lineno, rest[0] if rest else "__init__"
        elif isinstance(node, ast.ImportFrom):
            path = _origin(module, node)
            if path is None:
                continue
            if path:
                yield node.lineno, path[0]
                continue
            for alias in node.names:
                yield node.lineno, alias.name if _is_module(alias.name) else "__init__"


def _origin(module: Module, node: ast.ImportFrom) -> tuple[str, ...] | None:
    """Where `from … import` looks, as a path below the package; None when that is elsewhere."""
    named = tuple(node.module.split(".")) if node.module else ()
    if node.level == 0:
        return named[1:] if named[:1] == ("towline",) else None
    package = module.package
    return package[: len(package) - (node.level - 1)] + named


def _is_module(name: str) -> bool:
    return (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Walk the tree, leaving out what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in (
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        ):
            for other in child.orelse:
                yield other
                yield from _running(other)
            continue
        yield child
        yield from _running(child)


if __name__ == "__main__":
    print(drawing())
