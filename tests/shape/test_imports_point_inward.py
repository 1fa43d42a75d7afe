"""Imports point inward: pure ← I/O ← edges.

A pure module can be read, tested and trusted without a database or a thread; that holds only as
long as nothing it imports while running needs one. Imports under `if TYPE_CHECKING:` do not run
and are free.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.shape.source import PACKAGE, ROOT, Module, complain, modules

# From the inside out. A folder stands for everything in it.
RINGS: dict[str, frozenset[str]] = {
    "pure": frozenset(
        {
            "codec",
            "current",
            "errors",
            "graph",
            "model",
            "moment",
            "naming",
            "operation",
            "payload",
            "retry",
            "secret",
            "sql",
            "store",
            "task",
        }
    ),
    "io": frozenset(
        {
            "ahead",
            "alone",
            "app",
            "attempt",
            "bell",
            "connections",
            "endings",
            "engine",
            "executor",
            "face",
            "job",
            "ledger",
            "lookout",
            "migrate",
            "oversight",
            "pace",
            "postgres",
            "process",
            "pump",
            "slots",
            "sqlite",
            "transaction",
            "turns",
            "upkeep",
            "waiting",
            "wakes",
            "where",
            "worker",
        }
    ),
    "edges": frozenset(
        {
            "cli",
            "dashboard",
            "demo",
            "integrations",
            "otel",
            "prometheus",
            "pytest_plugin",
            "supervisor",
            "testing",
        }
    ),
}

# The front door gathers names from every ring, so it belongs to none, and only the outermost
# ring may come in through it.
DOORS = frozenset({"__init__", "__main__"})

ORDER = list(RINGS)
HERE = Path(__file__).relative_to(ROOT)


def ring_of(top: str) -> str | None:
    if top in DOORS:
        return ORDER[-1]
    return next((ring for ring, members in RINGS.items() if top in members), None)


def test_every_module_belongs_to_a_ring() -> None:
    complain(
        [
            f"{module.at(1)}: towline.{module.name} is in no ring; "
            f"list {module.name.split('.')[0]!r} in RINGS at the top of {HERE}"
            for module in modules()
            if ring_of(module.name.split(".")[0]) is None
        ]
    )


def test_no_module_is_in_two_rings() -> None:
    listed = [name for members in RINGS.values() for name in members]
    complain([f"{name!r} is in two rings" for name in set(listed) if listed.count(name) > 1])


def test_imports_point_inward() -> None:
    complain([complaint for module in modules() for complaint in outward(module)])


def outward(module: Module) -> Iterator[str]:
    top = module.name.split(".")[0]
    ring = ring_of(top)
    if top in DOORS or ring is None:
        return
    for line, target in imports(module):
        target_ring = ring_of(target)
        if target_ring is None or ORDER.index(target_ring) <= ORDER.index(ring):
            continue
        if target in DOORS:
            yield (
                f"{module.at(line)}: imports from the package's front door; "
                "name the module that defines what it needs"
            )
        else:
            yield f"{module.at(line)}: {ring}, but imports {target}, which is {target_ring}"


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Each import of the package by itself: line, and the first name below `towline`."""
    for node in running(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first, *rest = alias.name.split(".")
                if first == "towline":
                    yield node.lineno, rest[0] if rest else "__init__"
        elif isinstance(node, ast.ImportFrom):
            path = origin(module, node)
            if path is None:
                continue
            if path:
                yield node.lineno, path[0]
                continue
            for alias in node.names:
                yield node.lineno, alias.name if is_module(alias.name) else "__init__"


def origin(module: Module, node: ast.ImportFrom) -> tuple[str, ...] | None:
    """Where `from … import` looks, as a path below the package; None when that is elsewhere."""
    named = tuple(node.module.split(".")) if node.module else ()
    if node.level == 0:
        return named[1:] if named[:1] == ("towline",) else None
    package = module.package
    return package[: len(package) - (node.level - 1)] + named


def is_module(name: str) -> bool:
    return (PACKAGE / f"{name}.py").exists() or (PACKAGE / name).is_dir()


def running(node: ast.AST) -> Iterator[ast.AST]:
    """Walk the tree, leaving out what only a type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) in (
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        ):
            for other in child.orelse:
                yield other
                yield from running(other)
            continue
        yield child
        yield from running(child)
