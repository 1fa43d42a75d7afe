"""E5, E6, E7, E8 for values nobody thought of: made by rules, shrunk to the smallest that fails.

A kind of value is an annotation with a way to make values of it; kinds are put together as types
are. The same values are made in every run.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import GenericAlias
from typing import Any, Literal, Union

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tests.payloads import (
    BERLIN,
    LIMIT,
    Account,
    Colour,
    Level,
    Movie,
    Pair,
    Parcel,
    Part,
    Point,
    Word,
    same,
)
from tests.speed import by_speed
from tests.unit.signatures import PLAIN, Text, alike, argument, of, refused, result
from towline.errors import InvalidArguments, OutputError, PayloadTooLarge
from towline.task.signature import Signature


def examples(number: int) -> hypothesis.settings:
    """So many in a proof."""
    most = by_speed(number // 3, number)
    return hypothesis.settings(deadline=None, derandomize=True, max_examples=most)


signature_of: Callable[[Any], Signature] = functools.lru_cache(maxsize=500)(of)

texts = st.text(max_size=6)
finite = st.floats(allow_nan=False, allow_infinity=False)
trees = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


# ---- kinds of values


@dataclass(frozen=True)
class Kind:
    annotation: Any
    values: SearchStrategy[Any]
    hashable: bool = True

    def __repr__(self) -> str:
        return f"Kind({self.annotation})"


offsets = st.integers(-14 * 60, 14 * 60).map(lambda m: dt.timezone(dt.timedelta(minutes=m)))
# An offset with seconds, as zones had them long ago, has no JSON form.
moments = st.datetimes(
    dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=offsets | st.just(dt.UTC)  # noqa: DTZ001
) | st.datetimes(
    dt.datetime(1990, 1, 1), dt.datetime(2090, 1, 1), timezones=st.just(BERLIN)  # noqa: DTZ001
)  # fmt: skip
times = st.times().map(lambda time: time.replace(fold=0))
decimals = st.decimals(allow_nan=False)
points = st.builds(Point, st.integers(), finite)
parcels = st.builds(Parcel, moments, st.none() | decimals, st.frozensets(texts, max_size=3))
parts = st.builds(Part, st.uuids(), st.timedeltas(), st.binary(max_size=5), st.none() | points)
accounts = st.builds(
    Account,
    id=st.uuids(),
    opened=moments,
    balance=st.decimals(allow_nan=False, allow_infinity=False),
    grace=st.timedeltas(),
    names=st.sets(texts, max_size=3),
    born=st.none() | st.dates(),
    limits=st.tuples(st.integers(), finite),
    home=texts.map(Path),
    colour=st.sampled_from(Colour),
    ownerName=texts,
)
movies = st.fixed_dictionaries({"title": texts}, optional={"year": st.integers()})

LEAVES = [
    Kind(bool, st.booleans()),
    Kind(int, st.integers() | st.integers(-(10**400), 10**400)),
    Kind(float, finite),
    Kind(str, texts),
    Kind(bytes, st.binary(max_size=8)),
    Kind(dt.datetime, moments),
    Kind(dt.date, st.dates()),
    Kind(dt.time, times),
    Kind(dt.timedelta, st.timedeltas()),
    Kind(uuid.UUID, st.uuids()),
    Kind(Decimal, decimals),
    Kind(Colour, st.sampled_from(Colour)),
    Kind(Word, st.sampled_from(Word)),
    Kind(Level, st.sampled_from(Level)),
    Kind(Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    Kind(Path, texts.map(Path)),
    Kind(PurePosixPath, texts.map(PurePosixPath)),
    Kind(Pair, st.builds(Pair, st.integers(), texts)),
    Kind(int | str | bool | None, st.none() | st.integers() | texts | st.booleans()),
    Kind(float | list[int] | dict[str, bool], finite | st.lists(st.integers(), max_size=3), False),
    Kind(Point, points, hashable=False),
    Kind(Parcel, parcels, hashable=False),
    Kind(Part, parts, hashable=False),
    Kind(Account, accounts, hashable=False),
    Kind(Movie, movies, hashable=False),
    Kind(Any, trees, hashable=False),
]
KEYS = [kind for kind in LEAVES if kind.annotation in (str, int, dt.date, uuid.UUID, Colour, bytes)]


def enclosing(inner: SearchStrategy[Kind]) -> SearchStrategy[Kind]:
    """Kinds made of kinds."""
    hashable = inner.filter(lambda kind: kind.hashable)
    pairs = st.tuples(inner, inner)
    mappings = st.tuples(st.sampled_from(KEYS), inner)
    return (
        inner.map(a_list)
        | inner.map(a_choice)
        | inner.map(many)
        | pairs.map(lambda pair: two(*pair))
        | mappings.map(lambda pair: mapping(*pair))
        | hashable.map(a_set)
        | hashable.map(a_frozen_set)
    )


def a_list(kind: Kind) -> Kind:
    return Kind(GenericAlias(list, kind.annotation), st.lists(kind.values, max_size=3), False)


def a_choice(kind: Kind) -> Kind:
    return Kind(Union[kind.annotation, None], st.none() | kind.values, kind.hashable)  # noqa: UP007


def many(kind: Kind) -> Kind:
    values = st.lists(kind.values, max_size=3).map(tuple)
    return Kind(GenericAlias(tuple, (kind.annotation, ...)), values, kind.hashable)


def two(one: Kind, other: Kind) -> Kind:
    both = GenericAlias(tuple, (one.annotation, other.annotation))
    return Kind(both, st.tuples(one.values, other.values), one.hashable and other.hashable)


def mapping(key: Kind, value: Kind) -> Kind:
    both = GenericAlias(dict, (key.annotation, value.annotation))
    return Kind(both, st.dictionaries(key.values, value.values, max_size=3), False)


def a_set(kind: Kind) -> Kind:
    return Kind(GenericAlias(set, kind.annotation), st.sets(kind.values, max_size=3), False)


def a_frozen_set(kind: Kind) -> Kind:
    return Kind(GenericAlias(frozenset, kind.annotation), st.frozensets(kind.values, max_size=3))


# Values that one might hand in by mistake, or that look like something else.
ODD_VALUES = [
    *((Text, st.builds(Text, texts)), (bytearray, st.binary(max_size=3).map(bytearray))),
    *((float, st.floats()), (Decimal, st.decimals()), (complex, st.complex_numbers())),
    *((dt.datetime, st.datetimes()), (dt.time, st.times())),
    *((int, st.just(5000).map(lambda digits: 10**digits)), (int, st.sampled_from([0, 1]))),
    *((str, st.dates().map(str)), (str, st.uuids().map(str)), (str, st.integers().map(str))),
    (str, st.sampled_from(["red", "a", "P1D", "1.5", "null", "true", "2024-01-01T00:00:00Z"])),
    (str, st.text(st.characters(categories=["Cs", "Lu"]), max_size=3)),
    (OrderedDict, st.builds(OrderedDict, a=st.integers())),
    (dict, st.dictionaries(st.integers() | st.booleans() | st.none() | texts, st.integers())),
]
ODD = [Kind(annotation, values, hashable=False) for annotation, values in ODD_VALUES]

kinds = st.recursive(st.sampled_from(LEAVES), enclosing, max_leaves=4)
odd_kinds = st.recursive(st.sampled_from([*LEAVES, *ODD]), enclosing, max_leaves=4)


@st.composite
def typed(draw: st.DrawFn) -> tuple[Any, Any]:
    """An annotation with a value of it."""
    kind = draw(kinds)
    return kind.annotation, draw(kind.values)


@st.composite
def crossed(draw: st.DrawFn) -> tuple[Any, Any]:
    """An annotation with a value of another, or of none."""
    return draw(kinds).annotation, draw(draw(odd_kinds).values)


# ---- what holds for all of them


@given(value=trees)
@examples(200)
def test_E5_every_json_kind_round_trips(value: Any) -> None:
    text = PLAIN.encode((value,), {}, limit=LIMIT)
    assert "\0" not in text
    assert alike(json.loads(text), {"value": value})
    assert alike(PLAIN.decode(text), ((), {"value": value}))
    assert alike(result(PLAIN, value), value)
    for annotation in (object, dict[str, Any], dict[str, object]):
        wrapped = value if annotation is object else {"key": value}
        assert alike(argument(signature_of(annotation), wrapped), wrapped)


@given(typed())
@examples(500)
def test_E6_a_value_of_its_type_round_trips(pair: tuple[Any, Any]) -> None:
    annotation, value = pair
    codec = signature_of(annotation)
    assert same(value, argument(codec, value))
    assert same(value, result(codec, value))


@given(crossed())
@examples(500)
def test_E7_a_value_of_another_type_is_refused_or_comes_back_equal(pair: tuple[Any, Any]) -> None:
    """It is never silently changed, such as a string that looks like a date, or a key that is none
    in JSON."""
    annotation, value = pair
    codec = signature_of(annotation)
    try:
        back = argument(codec, value)
    except InvalidArguments:
        text = refused(codec, value).encode().decode()  # though the value itself may be no text
        assert "argument 'value'" in text
        with pytest.raises(OutputError, match="the result"):
            codec.encode_output(value, limit=LIMIT)
    else:
        assert as_good(value, back)
        assert same(back, result(codec, value))


def as_good(given: Any, back: Any) -> bool:
    """What Python takes one for the other: an int for a float, a subclass for its class."""
    if isinstance(given, bool) or isinstance(back, bool):
        return given is back
    kind: Any = type(back)
    if kind is float and isinstance(given, int):
        return bool(given == back)
    if not isinstance(given, kind):
        return False
    if isinstance(given, dict):
        return as_good(list(given.items()), list(back.items()))
    if isinstance(given, (list, tuple)):
        return len(given) == len(back) and all(map(as_good, given, back))
    if isinstance(given, (set, frozenset)):
        return len(given) == len(back) and all(any(as_good(x, y) for y in back) for x in given)
    return same(given, back) or bool(given == back)


@given(st.text(st.characters(categories=["Cs"]), min_size=1), trees)
@examples(100)
def test_E5_a_lone_surrogate_is_refused_wherever_it_stands(bad: str, beside: Any) -> None:
    for value in (bad, [beside, bad], {"a": [beside, {"b": bad}]}, {bad: beside}):
        assert "lone surrogate" in refused(PLAIN, value)
        with pytest.raises(OutputError, match="lone surrogate"):
            PLAIN.encode_output(value, limit=LIMIT)


@given(st.text(), st.integers(1, 60))
@examples(200)
def test_E8_the_limit_counts_bytes(value: str, limit: int) -> None:
    size = len(PLAIN.encode((value,), {}, limit=LIMIT).encode())
    if size <= limit:
        PLAIN.encode((value,), {}, limit=limit)
    else:
        with pytest.raises(PayloadTooLarge, match=f"take {size} bytes; the limit is {limit} bytes"):
            PLAIN.encode((value,), {}, limit=limit)


@given(st.datetimes(timezones=st.just(BERLIN) | st.timezones()))
@examples(100)
def test_E6_an_instant_never_moves(value: dt.datetime) -> None:
    try:
        back = argument(signature_of(dt.datetime), value)
    except InvalidArguments:
        return  # an offset with seconds, or an instant beyond the calendar, has no JSON form
    assert back.astimezone(dt.UTC) == value.astimezone(dt.UTC)


def holds(value: Any, kind: type) -> bool:
    inside = value if isinstance(value, (list, tuple, set, frozenset)) else ()
    inside = [*value, *value.values()] if isinstance(value, dict) else inside
    return type(value) is kind or any(holds(item, kind) for item in inside)


def test_what_fails_is_shrunk_to_the_smallest_that_does() -> None:
    """Or nobody could read it."""
    found = hypothesis.find(typed(), lambda pair: holds(pair[1], bytes), settings=examples(2000))
    assert found == (bytes, b"")
