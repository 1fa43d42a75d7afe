"""How a signature and its types are written for people."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Mapping, Sequence, Set
from typing import Any

from ..secret import HIDDEN
from .payload import type_text


class Words(str):
    """Text that stands in a signature as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def spelt_types(hints: Mapping[str, Any]) -> dict[str, str]:
    """Types without marks, and without where Python and we keep them."""
    bare = typing.get_type_hints(type("", (), {"__annotations__": dict(hints)}))
    return {name: _spelt_type(hint) for name, hint in bare.items()}


def _spelt_type(hint: Any) -> str:
    if hint is type(None):
        return "None"
    return type_text(hint).replace("typing.", "").replace("towline.task.Next", "Next")


def spelt(
    name: str, parameters: Sequence[inspect.Parameter], hints: Mapping[str, Any], secret: Set[str]
) -> str:
    """A signature; the default of a secret is one, too."""
    empty = inspect.Parameter.empty
    types = {each: Words(text) for each, text in spelt_types(hints).items()}
    shown = [
        p.replace(
            annotation=types.get(p.name, empty),
            default=Words(HIDDEN) if p.name in secret and p.default is not empty else p.default,
        )
        for p in parameters
    ]
    # Without what the worker hands in the order need not be one that Python accepts.
    signature = inspect.Signature(
        shown, return_annotation=types.get("return", empty), __validate_parameters__=False
    )
    return f"{name}{signature}"
