"""Which functions can be tasks, and which of their parameters the worker fills."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Optional

import pytest

from tests.payloads import Point
from tests.unit.signatures import ADD, Context, add, of, refused, result, signature, through
from towline.errors import InvalidTask
from towline.task.signature import Signature

if TYPE_CHECKING:
    from fractions import Fraction


# The parameter that the worker fills


def injected_middle(a: int, ctx: Context, b: int = 2) -> None: ...
def injected_optional(a: int, b: int = 2, ctx: Context | None = None) -> None: ...
def injected_keyword(a: int, b: int = 2, *, job: "Context") -> None: ...
def injected_default(a: int = 1, ctx: Optional["Context"] = None, *, b: int = 2) -> None: ...


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (injected_middle, "ctx"),
        (injected_optional, "ctx"),
        (injected_keyword, "job"),
        (injected_default, "ctx"),
    ],
)
def test_the_injected_parameter_is_never_stored(function: Callable[..., Any], name: str) -> None:
    codec = signature(function)
    assert codec.injected == name
    assert name not in codec.text
    args, kwargs = through(codec, 1, b=3)
    function(*args, **kwargs, **{name: Context()})
    assert (args, kwargs) == ((), {"a": 1, "b": 3})
    assert f"'{name}' is handed in by the worker" in refused(codec, 1, **{name: Context()})


def test_an_injected_type_may_be_known_to_type_checkers_only() -> None:
    def task(a: int, ctx: Any) -> None: ...

    class Late: ...

    task.__annotations__ = {"a": "int", "ctx": "Late"}
    assert Signature(task, name="task", injected=Late).injected == "ctx"


def test_without_an_injected_type_there_is_no_injected_parameter() -> None:
    assert ADD.injected is None
    assert Signature(add, name="add").injected is None


# Functions that cannot be tasks


class Holder:
    def method(self, a: int) -> None: ...

    @classmethod
    def of_class(cls, a: int) -> None: ...

    @staticmethod
    def alone(a: int) -> int:
        return a


def test_a_staticmethod_and_a_coroutine_function_are_tasks() -> None:
    async def later(a: int) -> Point:
        return Point(a)

    assert through(Signature(vars(Holder)["alone"], name="alone"), 1) == ((), {"a": 1})
    assert through(signature(Holder.alone), 1) == ((), {"a": 1})
    assert result(signature(later), Point(1)) == Point(1)


def generates() -> Iterable[int]:
    yield 1


def two_contexts(a: Context, b: Context) -> None: ...
def positional_context(ctx: Context, /) -> None: ...
def context_before_rest(ctx: Context, *rest: int) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        Holder,
        Holder().method,
        Holder.of_class,
        vars(Holder)["of_class"],
        print,
        "text",
        generates,
        two_contexts,
        positional_context,
        context_before_rest,
    ],
)
def test_what_cannot_be_a_task_is_refused(function: Any) -> None:
    with pytest.raises(InvalidTask, match=r"^name: "):
        Signature(function, name="name", injected=Context)


def test_an_unresolved_annotation_is_named() -> None:
    def task(a: "int", b: "Fraction") -> None: ...

    with pytest.raises(InvalidTask, match=r"^task: the name 'Fraction' .*TYPE_CHECKING"):
        signature(task)

    @dataclasses.dataclass
    class Deep:
        a: "Missing"  # type: ignore[name-defined] # noqa: F821 # pyright: ignore[reportUndefinedVariable]

    with pytest.raises(InvalidTask, match="'Missing'"):
        of(Deep)
