"""Which statements there are for operations, in which forms, and which of them ran.

A statement of `queries.sql` has up to four forms: run once (`one`), once for each row (`many`), the
same with an answer for each (`counted`), and with so many rows that psycopg sends them by COPY
(`bulk`). Which forms are used is read from the modules that hold the operations; what is in
`queries.sql` and in none of them belongs to a connection of ours: migrations, the watch, the bell.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from towline.connections.psycopg import COPY_FROM
from towline.operation import Row, Statement, Steps
from towline.sql import Queries

T = TypeVar("T")

Form = tuple[str, str]
"""A statement by name, and one of its forms."""

Answer = tuple[Form, list[str]]
"""What came back, row by row in no order; written out, so that True is not 1 nor bytes text."""


# All that crosses to a driver: what each of them knows without being told.
SCALARS = {str, int, float, bytes, type(None)}


def watched(script: Callable[[], Steps[T]], answers: list[Answer]) -> Callable[[], Steps[T]]:
    """The script, which notes what it was answered."""

    def note(statement: Statement, rows: list[Row]) -> None:
        answers.append((form_of(statement), sorted(map(repr, rows))))

    return _told(script, note)


def of_scalars(script: Callable[[], Steps[T]]) -> Callable[[], Steps[T]]:
    """The script, whose statements carry nothing that only some drivers know, as an enumeration."""

    def check(statement: Statement, _: list[Row]) -> None:
        for row in (statement.params, *(statement.rows or ())):
            assert {*map(type, row)} <= SCALARS, f"{statement}: {row}"

    return _told(script, check)


def _told(
    script: Callable[[], Steps[T]], tell: Callable[[Statement, list[Row]], None]
) -> Callable[[], Steps[T]]:
    """The script, which tells of each statement and its answer."""

    def steps() -> Steps[T]:
        inner = script()
        try:
            item = next(inner)
            while True:
                try:
                    rows = yield item
                except BaseException as error:
                    item = inner.throw(error)
                    continue
                if isinstance(item, Statement):
                    tell(item, rows)
                item = inner.send(rows)
        except StopIteration as stop:
            result: T = stop.value
            return result

    return steps


def form_of(statement: Statement) -> Form:
    if statement.rows is None:
        return statement.query.name, "one"
    if statement.counted:
        return statement.query.name, "counted"
    bulk = statement.query.copy is not None and len(statement.rows) >= COPY_FROM
    return statement.query.name, "bulk" if bulk else "many"


@functools.cache
def forms(store: str) -> frozenset[Form]:
    """Every statement that operations of a store run, in each of the forms they use; the store is
    named by its module."""
    sql = Queries(f"towline.{'postgres' if 'postgres' in store else 'sqlite'}", "towline_")
    known = {query.name: query for query in sql}
    found: set[Form] = set()
    for module in modules(store):
        for name, form in mentioned(ast.parse(inspect.getsource(importlib.import_module(module)))):
            if name in known:
                found.add((name, form))
                if form == "many" and known[name].copy:
                    found.add((name, "bulk"))
    return frozenset(found)


def modules(first: str) -> set[str]:
    """The modules of operations: the store's own, and what it imports of its engine and of the
    store of all engines."""
    engine = first.rpartition(".")[0]
    seen: set[str] = set()
    todo = [first]
    while todo:
        name = todo.pop()
        if name in seen or not name.startswith(("towline.store", engine)):
            continue
        seen.add(name)
        module = importlib.import_module(name)
        package = module.__package__ or ""
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom):
                source = "." * node.level + (node.module or "")
                base = importlib.util.resolve_name(source, package) if node.level else source
                todo.append(base)
                todo += [
                    f"{base}.{alias.name}"
                    for alias in node.names
                    if f"{base}.{alias.name}" in sys.modules
                ]
    return seen


def mentioned(tree: ast.AST) -> Iterator[Form]:
    """Names that stand behind `.sql.`, with what is done to them; and names in quotes, of walks
    that go either way."""
    called: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("many", "counted"):
            called[id(node.value)] = node.attr
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            if node.value.attr == "sql":
                yield node.attr, called.get(id(node), "one")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f"{node.value}_newest", "one"
            yield f"{node.value}_oldest", "one"
