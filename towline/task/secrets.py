"""Which values of a task must not be shown: those marked `Annotated[str, Secret]`.

A mark stands on a parameter, on the result, or on a field of a model somewhere inside of them. Of a
field only its name is kept: whatever has that name in the arguments is hidden, rather too much than
too little.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from ..secret import Secret


class Secrets(Struct, frozen=True):
    """Names whose values are hidden, of a task's arguments and of its result."""

    arguments: frozenset[str] = frozenset()
    output: frozenset[str] = frozenset()
    whole_output: bool = False


def secrets_of(hints: Mapping[str, Any]) -> Secrets:
    """Read them from a function's annotations."""
    inside: set[str] = set()
    for name, hint in hints.items():
        if name != "return":
            inside.update([name] if _is_secret(hint) else _fields(hint, set()))
    returned = hints.get("return")
    whole = _is_secret(returned)
    return Secrets(frozenset(inside), frozenset(_fields(returned, set())), whole)


def _is_secret(hint: Any) -> bool:
    marks = getattr(hint, "__metadata__", ())
    return any(mark is Secret or isinstance(mark, Secret) for mark in marks)


def _fields(hint: Any, seen: set[Any]) -> Iterator[str]:
    """Names of marked fields of the models in a type, however deep."""
    for part in typing.get_args(hint):
        yield from _fields(part, seen)
    if not isinstance(hint, type) or hint in seen:
        return
    seen.add(hint)
    try:
        fields = typing.get_type_hints(hint, include_extras=True)
    except Exception:  # a name that is not known at run time; the type was accepted all the same
        return
    for name, inner in fields.items():
        if _is_secret(inner):
            yield name
        else:
            yield from _fields(inner, seen)
