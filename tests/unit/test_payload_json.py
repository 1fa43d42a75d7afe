"""E5: plain JSON comes back the same, and what JSON has no word for is refused by name."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.payloads import LIMIT, Point
from tests.payloads import PLAIN as VALUES
from tests.unit.signatures import (
    ADD,
    DESCRIBE,
    PLAIN,
    Line,
    Tree,
    alike,
    argument,
    of,
    refused,
    result,
)
from towline.errors import OutputError
from towline.task.payload import Refused, Value


@pytest.mark.parametrize("value", VALUES)
def test_E5_edges_round_trip(value: Any) -> None:
    assert alike(argument(PLAIN, value), value)
    assert alike(result(PLAIN, value), value)
    assert alike(argument(of(type(value)), value), value)


def test_E5_an_int_too_long_to_print_is_refused() -> None:
    assert "argument 'a'" in refused(ADD, 10**5000, 1)
    assert "argument 'value'" in refused(PLAIN, [10**5000])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_E5_floats_that_json_lacks_are_refused_by_name(bad: float) -> None:
    for codec, value in [
        (PLAIN, bad),
        (PLAIN, {"a": [1.0, bad]}),
        (of(float), bad),
        (of(float | None), bad),
        (of(list[float | None]), [bad]),
        (of(dict[str, Any]), {"a": bad}),
        (of(Point), Point(1, bad)),
        (of(Line), Line([Point(1, 2), Point(1, bad)])),
        (of(tuple[float, ...]), (bad,)),
    ]:
        text = refused(codec, value)
        assert "argument 'value'" in text
        assert repr(bad) in text
        assert "JSON" in text
        with pytest.raises(OutputError, match="JSON"):
            codec.encode_output(value, limit=LIMIT)


def test_E5_the_place_of_a_bad_value_is_told() -> None:
    assert "was given Line, at .points[1].y: nan" in refused(
        of(Line), Line([Point(1), Point(1, math.nan)])
    )
    assert "argument 'value' (dict), at ['a'][1]: nan" in refused(PLAIN, {"a": [1, math.nan]})


@pytest.mark.parametrize("bad", ["\ud800", "a\udfffb"])
def test_E5_lone_surrogates_are_refused(bad: str) -> None:
    for codec, value in [
        (PLAIN, bad),
        (PLAIN, {"a": [bad]}),
        (PLAIN, {bad: 1}),
        (of(str), bad),
        (of(list[str]), [bad]),
        (of(dict[str, int]), {bad: 1}),
    ]:
        text = refused(codec, value)
        assert "argument 'value'" in text
        assert "lone surrogate" in text
        text.encode()
        with pytest.raises(OutputError, match="lone surrogate"):
            codec.encode_output(value, limit=LIMIT)
    refused(DESCRIBE, 1, **{bad: 1.0})


def test_E5_endless_nesting_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    tree = Tree(0)
    for _ in range(300):
        tree = Tree(0, [tree])
    for codec, value in [(PLAIN, loop), (PLAIN, deep), (of(list[Any]), loop), (of(Tree), tree)]:
        assert "nested deeper" in refused(codec, value)


class Thing:
    """Nothing that JSON knows."""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Thing(), "Thing has no form in JSON; pass what describes it, such as an id"),
        ((1, 2), "tuple would come back as list; annotate its type"),
        (datetime(2026, 1, 2, tzinfo=UTC), "datetime would come back as str; annotate its type"),
    ],
)
def test_what_is_not_plain_is_refused_with_what_would_become_of_it(value: Any, text: str) -> None:
    with pytest.raises(Refused, match=text):
        Value(Any).ready(value)
