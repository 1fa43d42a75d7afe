"""E6: typed values come back as what they were, and what would not is refused by name and type."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from tests.payloads import BERLIN, KEY, LIMIT, TYPED, Point, same
from tests.unit.signatures import (
    PLAIN,
    Context,
    Line,
    Tree,
    add,
    argument,
    of,
    refused,
    result,
)
from towline.errors import InvalidTask
from towline.task.signature import Signature, convert


class Order(msgspec.Struct):
    id: int
    lines: dict[str, int] = {}


class User(pydantic.BaseModel):
    id: int
    born: dt.date | None = None
    name: str = pydantic.Field(default="", alias="fullName")


class StrictUser(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    id: uuid.UUID
    tags: set[str]


class Event(pydantic.BaseModel):
    at: dt.datetime
    also: list[set[dt.datetime]] = []
    share: float = 0.0
    _seen: bool = pydantic.PrivateAttr(default=False)


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


OTHERS: list[tuple[Any, Any]] = [
    (Line, Line([Point(1), Point(2)], "a")),
    (Tree, Tree(1, [Tree(2)])),
    (Order, Order(1, {"a": 2})),
    (User, User(id=1, born=dt.date(2000, 1, 2), fullName="Ann")),
    (list[User], [User(id=1)]),
    (StrictUser, StrictUser(id=KEY, tags={"a"})),
    (Open, Open.model_validate({"any": [1, None]})),
    (dt.datetime, dt.datetime(2024, 5, 6, 7, 8)),  # noqa: DTZ001
    (Annotated[int, msgspec.Meta(ge=0)], 3),
    (Path | None, None),
]


@pytest.mark.parametrize(("annotation", "value"), [*TYPED, *OTHERS])
def test_E6_typed_values_round_trip(annotation: Any, value: Any) -> None:
    assert same(value, argument(of(annotation), value))
    assert same(value, result(of(annotation), value))
    assert same(value, convert(of(annotation).encode_output(value, limit=LIMIT), annotation))


@pytest.mark.parametrize("fold", [0, 1])
@pytest.mark.parametrize("day", [dt.date(2025, 3, 30), dt.date(2025, 10, 26)])
def test_E6_the_hour_that_is_skipped_or_repeated_keeps_its_instant(
    day: dt.date, fold: Literal[0, 1]
) -> None:
    """Python holds times in it to be equal to none of another zone: it cannot tell by ==."""
    time = dt.datetime.combine(day, dt.time(2, 30, fold=fold), BERLIN)
    event = Event(at=time, also=[{time}])
    for annotation, value in [
        (dt.datetime, time),
        (list[dt.datetime], [time]),
        (set[dt.datetime], {time}),
        (dict[dt.datetime, int], {time: 1}),
        (frozenset[tuple[dt.datetime, ...]], frozenset({(time,)})),
        (Event, event),
        (dict[str, Event | None], {"a": event}),
    ]:
        assert same(value, argument(of(annotation), value))
        assert same(value, result(of(annotation), value))


def test_E6_a_time_that_would_change_is_refused() -> None:
    odd = dt.timezone(dt.timedelta(hours=1, seconds=30))
    refused(of(dt.datetime), dt.datetime(2024, 1, 1, tzinfo=odd))
    refused(of(dt.datetime), dt.datetime(2024, 1, 1, fold=1))  # noqa: DTZ001
    early = dt.timezone(dt.timedelta(hours=5))
    refused(of(dt.datetime), dt.datetime.min.replace(tzinfo=early))
    refused(of(dt.date), dt.datetime(2024, 1, 1, tzinfo=dt.UTC))


def test_E6_the_place_of_a_bad_value_in_a_model_is_told() -> None:
    event = Event(at=dt.datetime(2025, 1, 1, tzinfo=dt.UTC), share=math.nan)
    assert "was given list, at [0].share: nan is a float" in refused(of(list[Event]), [event])


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("sNaN")])
def test_E6_a_decimal_that_equals_nothing_is_refused(value: Decimal) -> None:
    refused(of(Decimal), value)


def test_E6_what_cannot_be_encoded_is_refused_by_name_and_type() -> None:
    for value in (object(), add, 1j, Point, iter([1])):
        for codec in (PLAIN, of(dict[str, Any]), of(list[int])):
            text = refused(codec, value)
            assert "argument 'value'" in text
            assert type(value).__name__ in text


def test_E6_what_a_model_would_drop_is_refused() -> None:
    class Hidden(pydantic.BaseModel):
        secret: str = pydantic.Field(default="", exclude=True)

    assert argument(of(Hidden), Hidden()) == Hidden()
    refused(of(Hidden), Hidden(secret="x"))
    event = Event(at=dt.datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN))
    event._seen = True
    refused(of(Event), event)
    refused(of(User), User.model_construct(id="not a number"))
    refused(of(User), User.model_construct(id=True))


@pytest.mark.parametrize(
    "annotation",
    [
        Context,
        Callable[[int], int],
        complex,
        range,
        list[Context],
        Path | str,
        Point | Order,
        OrderedDict[str, int],
        type,
        Iterable[complex],
    ],
)
def test_E6_an_unsupported_annotation_is_refused_at_decoration(annotation: Any) -> None:
    def task(value: Any) -> Any: ...

    for place, name in [("value", "argument 'value'"), ("return", "the result")]:
        task.__annotations__ = {place: annotation}
        with pytest.raises(InvalidTask, match=f"^mail: {name} is annotated"):
            Signature(task, name="mail")
