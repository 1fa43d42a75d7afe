"""What a class or a function of the package shows to a reader: signature, fields, docstrings.

Read from the source, so that a page says what is written there.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module

from tests.shape.source import PACKAGE

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def source(module: str) -> tuple[ast.Module, list[str]]:
    """A module of the package, by its dotted name without `towline`, as a tree and as lines."""
    path = PACKAGE.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = path.read_text("utf-8")
    return ast.parse(text), text.splitlines()


def home(module: str, name: str) -> str:
    """Where it is written, which may not be where it is offered."""
    if any(node.name == name for node in _defined(module)):
        return module
    found = getattr(import_module(f"towline.{module}"), name)
    return str(found.__module__).removeprefix("towline.")


def public(module: str) -> set[str]:
    """What a module offers: what its __all__ says, or else every class and function of its own
    without an underscore. It is not imported: what it is for may need to be set up before."""
    for node in source(module)[0].body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=names)):
                return {ast.literal_eval(name) for name in names}
    return {node.name for node in _defined(module) if node.name[0] != "_"}


def _defined(module: str) -> Iterator[Definition]:
    for node in source(module)[0].body:
        if isinstance(node, Definition):
            yield node


def literals(module: str, name: str) -> str:
    """The words that a type of a module may be."""
    match ast.parse(value(module, name)).body:
        case [ast.Expr(value=ast.Subscript(value=ast.Name(id="Literal"), slice=slice))]:
            several = slice.elts if isinstance(slice, ast.Tuple) else [slice]
            return ", ".join(f"`{ast.unparse(word)}`" for word in several)
    raise LookupError(f"{name} of towline.{module} is no Literal")


def value(module: str, name: str) -> str:
    """What a module assigns to a name."""
    for node in source(module)[0].body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=value) if found == name:
                return ast.unparse(value)
    raise LookupError(f"towline.{module} assigns nothing to {name}")


def definition(module: str, name: str) -> Definition:
    for node in _defined(module):
        if node.name == name and not is_decorated(node, "overload"):
            return node
    raise LookupError(f"there is no {name} in towline.{module}")


def said(node: ast.AST) -> str:
    """Its docstring, as paragraphs of one line."""
    assert isinstance(node, Definition)
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str = "") -> str:
    """How it is called; without self."""
    gives = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    return f"{name or node.name}({', '.join(_parameters(node.args))}){gives}"


def _parameters(of: ast.arguments) -> Iterator[str]:
    placed = [*of.posonlyargs, *of.args]
    defaults = [*[None] * (len(placed) - len(of.defaults)), *of.defaults]
    for number, (each, default) in enumerate(zip(placed, defaults, strict=True), 1):
        if each.arg not in ("self", "cls"):
            yield _parameter(each, default)
        if number == len(of.posonlyargs) and each.arg not in ("self", "cls"):
            yield "/"
    if of.vararg:
        yield f"*{_parameter(of.vararg, None)}"
    elif of.kwonlyargs:
        yield "*"
    for each, default in zip(of.kwonlyargs, of.kw_defaults, strict=True):
        yield _parameter(each, default)
    if of.kwarg:
        yield f"**{_parameter(of.kwarg, None)}"


def _parameter(each: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(each.annotation)}" if each.annotation else ""
    equals = " = " if kind else "="
    return f"{each.arg}{kind}{equals + ast.unparse(default) if default else ''}"


def constructor(node: ast.ClassDef) -> str | None:
    """How an object of the class is made, if users make any."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return signature(each, node.name)
    return None


def fields(module: str, node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Public attributes: name, type, what is said of it."""
    lines = source(module)[1]
    for each in node.body:
        match each:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind) if name[0] != "_":
                yield name, ast.unparse(kind), _comment(lines[each.lineno - 1])
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Subscript(value=ast.Name(id="Stored"), slice=kind)),
            ):
                yield name, ast.unparse(kind), _comment(lines[each.lineno - 1])
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))) if (
                name.isupper()
            ):
                yield name, repr(text), _comment(lines[each.lineno - 1])
            case ast.FunctionDef(name=name) if name[0] != "_" and (
                is_decorated(each, "property") or is_decorated(each, "cached_property")
            ):
                yield name, ast.unparse(each.returns) if each.returns else "", said(each)


def methods(
    node: ast.ClassDef,
) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str | None]]:
    """Public methods in their order, each with the name of its awaiting twin."""
    found = {
        each.name: each
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and each.name[0] != "_"
        and not any(
            is_decorated(each, word) for word in ("overload", "property", "cached_property")
        )
        and not is_decorated(each, "classmethod")
    }
    for name, each in found.items():
        plain = name[1:] if name != "await_" else "wait"
        if name[0] == "a" and plain in found:
            continue
        twin = "await_" if name == "wait" else f"a{name}"
        yield each, twin if twin in found else None


def words(names: Iterable[str]) -> str:
    """As a page says them."""
    return " ".join(f"`{name}`" for name in names)


def check(page: str, said: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a sentence about nothing, and what has none."""
    if set(said) != set(known):
        raise SystemExit(
            f"tests/docs/reference/{page}.py: say what these are, or take them out: "
            + ", ".join(sorted(set(said) ^ set(known)))
        )


def is_decorated(node: ast.AST, decorator: str) -> bool:
    """Whether it is decorated by that, or by a call of it."""
    return any(
        decorator in ast.unparse(each).partition("(")[0].split(".")
        for each in getattr(node, "decorator_list", ())
    )


def _comment(line: str) -> str:
    return line.partition("  # ")[2].strip()
