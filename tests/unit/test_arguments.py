"""E7: arguments that do not fit are refused with the task's signature; the rest is the call."""

import dataclasses
import datetime as dt
import json
import uuid
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Unpack

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.payloads import KEY, LIMIT, Account, Colour, Level, Movie, Pair, Part, Point, Word
from tests.unit.signatures import (
    ADD,
    DESCRIBE,
    ONLY,
    PLAIN,
    Context,
    Line,
    Text,
    alike,
    argument,
    of,
    refused,
    result,
    signature,
    through,
)
from towline.errors import InvalidArguments, OutputError


@dataclasses.dataclass
class Place(Point):
    name: str = ""


class Spot(Point):
    """A subclass that adds no field."""


# E7: arguments that do not fit


def test_E7_the_signature_names_what_the_caller_gives() -> None:
    def publish(album: int, ctx: Context, size: float = 1.5, *, to: str | None = None) -> str:
        return ""

    assert ADD.text == "add(a: int, b: int) -> int"
    text = "publish(album: int, size: float = 1.5, *, to: str | None = None) -> str"
    assert signature(publish).text == text
    assert DESCRIBE.text.endswith(") -> None")


def test_E7_missing_unknown_and_superfluous_arguments() -> None:
    assert "argument 'b' is missing" in refused(ADD, 1)
    assert "arguments 'a', 'b' are missing" in refused(ADD)
    assert "unknown argument 'c'" in refused(ADD, 1, 2, c=3)
    assert "takes at most 2 positional arguments, 3 were given" in refused(ADD, 1, 2, 3)
    assert "argument 'a' was given twice" in refused(ADD, 1, a=2)
    assert "argument 'a' is positional only" in refused(ONLY, a=1)

    def nothing(*, a: int = 1) -> None: ...

    assert "takes no positional arguments, 1 was given" in refused(signature(nothing), 1)


@pytest.mark.parametrize(
    ("annotation", "value", "given_type"),
    [
        (int, "x", "str"),
        (int, 1.0, "float"),
        (int, None, "NoneType"),
        (str, 1, "int"),
        (str, b"a", "bytes"),
        (bool, 1, "int"),
        (float, "1", "str"),
        (float, 2**53 + 1, "int"),
        (uuid.UUID, str(KEY), "str"),
        (dt.date, "2024-01-01", "str"),
        (Colour, "red", "str"),
        (Point, {"x": 1}, "dict"),
        (Point, Point("x"), "Point"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (Point, Place(1), "Place"),
        (Point, Spot(1), "Spot"),
        (Line, Line([Point("x")]), "Line"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (Part, Part("x", dt.timedelta()), "Part"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (Account, {"id": 1}, "dict"),
        (Movie, {"title": 1}, "dict"),
        (Movie, {"title": "a", "unknown": 1}, "dict"),
        (Literal["a"], "b", "str"),
        (list[int], (1, 2), "tuple"),
        (list[int], ["x"], "list"),
        (tuple[int, ...], [1], "list"),
        (set[int], [1], "list"),
        (set[Decimal], {1}, "set"),
        (set[Path], {PurePosixPath("a")}, "set"),
        (dict[str, int], {1: 2}, "dict"),
        (dict[int, int], {True: 2}, "dict"),
        (dict[str, Any], {"a": (1,)}, "dict"),
        (dict[str, Any], {"a": {1: 2}}, "dict"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "int"),
        (Path, "a", "str"),
        (bytes, bytearray(b"a"), "bytearray"),
    ],
)
def test_E7_a_wrong_type_is_refused(annotation: Any, value: Any, given_type: str) -> None:
    codec = of(annotation)
    text = refused(codec, value)
    assert "argument 'value' expects " in text
    assert f"was given {given_type}" in text
    with pytest.raises(OutputError, match=f"the result expects .*was given {given_type}"):
        codec.encode_output(value, limit=LIMIT)


def test_E7_the_text_of_a_refusal() -> None:
    text = "add(a: int, b: int) -> int: argument 'a' expects int, was given str"
    assert refused(ADD, "x", 2) == text
    nested = refused(of(Line), Line([Point("x")]))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert "Expected `int`, got `str` - at `$.points[0].x`" in nested


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1},
        {1: "a"},
        {None: 1},
        b"a",
        Point(1),
        KEY,
        Colour.RED,
        Word.A,
        Text("a"),
        [(1,)],
        {"a": {True: 1}},
        dt.date(2024, 1, 1),
        OrderedDict(a=1),
    ],
)
def test_E7_untyped_values_that_json_would_change_are_refused(value: Any) -> None:
    for codec in (PLAIN, of(Any), of(object)):
        text = refused(codec, value)
        assert "argument 'value'" in text
        assert "annotate" in text
        with pytest.raises(OutputError, match="annotate"):
            codec.encode_output(value, limit=LIMIT)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (float, 1, 1.0),
        (list[float], [1, 2.5], [1.0, 2.5]),
        (Point, Point(1, 2), Point(1, 2.0)),
        (int, True, True),
        (int | None, False, False),
        (int, Level.LOW, 1),
        (str, Word.A, "a"),
        (str, Text("a"), "a"),
        (list[str], [Text("a")], ["a"]),
        (dict[str, int], defaultdict(int, a=1), {"a": 1}),
        (tuple[int, str], Pair(1, "a"), (1, "a")),
        (Sequence[int], (1, 2), [1, 2]),
        (Sequence, (1, "a"), [1, "a"]),
        (Iterable[int], (1,), [1]),
        (Mapping[str, int], {"a": 1}, {"a": 1}),
    ],
)
def test_E7_what_python_accepts_is_accepted(annotation: Any, value: Any, expected: Any) -> None:
    assert alike(argument(of(annotation), value), expected)
    assert alike(result(of(annotation), value), expected)


# How arguments are stored and handed to the function


def test_arguments_are_stored_by_name_and_defaults_are_not() -> None:
    assert ADD.encode((1,), {"b": 2}, limit=LIMIT) == '{"a":1,"b":2}'
    assert DESCRIBE.encode((1,), {}, limit=LIMIT) == '{"a":1}'
    stored = json.loads(DESCRIBE.encode((1, "y", 3, 4), {"flag": True, "z": 1.5}, limit=LIMIT))
    assert stored == {"a": 1, "b": "y", "*rest": [3, 4], "flag": True, "**options": {"z": 1.5}}


def call(
    a: int, b: int = 2, /, c: int = 3, *rest: int, d: int = 4, **options: int
) -> tuple[Any, ...]:
    return a, b, c, rest, d, options


@given(
    args=st.lists(st.integers(), min_size=1, max_size=5),
    kwargs=st.dictionaries(st.sampled_from(["c", "d", "a", "rest", "x"]), st.integers()),
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_a_call_through_storage_is_the_call(args: list[int], kwargs: dict[str, int]) -> None:
    if len(args) > 2:
        kwargs.pop("c", None)
    got_args, got_kwargs = through(signature(call), *args, **kwargs)
    assert call(*got_args, **got_kwargs) == call(*args, **kwargs)


def test_a_parameter_added_with_a_default_takes_it() -> None:
    def before(a: int, b: int = 0, /, *rest: int) -> tuple[Any, ...]:
        return a, b, rest

    def after(a: int, new: str = "n", b: int = 0, /, more: int = 5, *rest: int) -> tuple[Any, ...]:
        return a, new, b, more, rest

    for given_args, expected in [
        ((1,), (1, "n", 0, 5, ())),
        ((1, 2), (1, "n", 2, 5, ())),
        ((1, 2, 3), (1, "n", 2, 5, (3,))),
    ]:
        text = signature(before).encode(given_args, {}, limit=LIMIT)
        args, kwargs = signature(after).decode(text)
        assert after(*args, **kwargs) == expected


@pytest.mark.parametrize("text", ['{"a":1}', '{"a":1,"b":2,"c":3}', '{"a":1,"b":"x"}', "[]", "{"])
def test_stored_arguments_that_no_longer_fit_are_refused(text: str) -> None:
    with pytest.raises(InvalidArguments, match=r"^add\(a: int, b: int\) -> int: the stored"):
        ADD.decode(text)


def test_text_from_a_driver_may_be_bytes() -> None:
    assert ADD.decode(b'{"a":1,"b":2}') == ((1, 2), {})
    assert ADD.decode_output(b"3") == 3


def test_keyword_options_can_be_typed_by_a_typed_dict() -> None:
    def film(**movie: Unpack[Movie]) -> None: ...

    assert through(signature(film), title="M") == ((), {"title": "M"})
    assert "expects" in refused(signature(film), title=1)
