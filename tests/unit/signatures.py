"""A task's signature to try: of one annotated value, and the ways through it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.payloads import LIMIT, Point
from towline.errors import InvalidArguments
from towline.task.signature import Signature


class Context:
    """Stands for what a worker hands in."""


@dataclasses.dataclass
class Line:
    points: list[Point]
    label: str | None = None


@dataclasses.dataclass
class Tree:
    value: int
    children: list["Tree"] = dataclasses.field(default_factory=list["Tree"])


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


def signature(function: Callable[..., Any], name: str | None = None) -> Signature:
    return Signature(function, name=name or function.__name__, injected=Context)


def of(annotation: Any) -> Signature:
    """The signature of a task that takes and returns one annotated value."""

    def task(value: Any) -> Any: ...

    task.__annotations__ = {"value": annotation, "return": annotation}
    return signature(task)


def unannotated(value, *rest, **options): ...  # type: ignore[no-untyped-def]


def through(codec: Signature, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """There and back; what can be told by name is."""
    args, kwargs = codec.decode(codec.encode(args, kwargs, limit=LIMIT))
    if codec._by_position:
        return (), dict(zip(codec._positional, args, strict=True))
    return args, kwargs


def refused(codec: Signature, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        codec.encode(args, kwargs, limit=LIMIT)
    assert str(caught.value).startswith(codec.text)
    return str(caught.value)


def argument(codec: Signature, value: Any) -> Any:
    return through(codec, value)[1]["value"]


def result(codec: Signature, value: Any) -> Any:
    return codec.decode_output(codec.encode_output(value, limit=LIMIT))


def add(a: int, b: int) -> int:
    return a + b


def describe(a: int, b: str = "x", *rest: int, flag: bool = False, **options: float) -> None:
    """Say what was given."""


def only(a: int, b: int = 2, /, c: int = 3) -> None: ...


ADD, DESCRIBE = signature(add), signature(describe)
ONLY, PLAIN = signature(only), signature(unannotated)


def alike(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)
