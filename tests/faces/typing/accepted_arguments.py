"""Every shape of parameter list reaches every way of calling. Never run, only checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack, assert_type

from towline import Call, Job, Next, Tasks

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


@tasks.task
def greet(name: str, *, loud: bool = False) -> str:
    return name


@tasks.task
def move(x: float, y: float, /, speed: float = 1.0) -> None: ...


@tasks.task
def total(*numbers: int) -> int:
    return sum(numbers)


@tasks.task
def tag(path: str, *words: str, **values: int) -> list[str]:
    return [path, *words, *values]


@tasks.task
def nothing() -> None: ...


@tasks.task
def anything(value: Any) -> None: ...


@tasks.task
def whatever(value: object, more: int = 0) -> bool:
    return bool(value)


@tasks.task
def shapes(rows: Sequence[Mapping[str, int]], end: int | str | None = None) -> dict[str, int]:
    return {}


class Film(TypedDict, total=False):
    title: str
    year: int


@tasks.task
def record(**film: Unpack[Film]) -> Film:
    return film


def through_enqueue() -> None:
    assert_type(add.enqueue(1), Job[int])
    assert_type(add.enqueue(1, 2), Job[int])
    assert_type(add.enqueue(b=1, a=2), Job[int])
    assert_type(add.enqueue(True), Job[int])
    assert_type(greet.enqueue("you", loud=True), Job[str])
    assert_type(move.enqueue(1, 2.5, speed=3), Job[None])
    assert_type(total.enqueue(), Job[int])
    assert_type(total.enqueue(*[1, 2, 3]), Job[int])
    assert_type(tag.enqueue("here", "old", "blue", size=3), Job[list[str]])
    assert_type(nothing.enqueue(), Job[None])
    assert_type(anything.enqueue({"free": ["form"]}), Job[None])
    assert_type(whatever.enqueue(add), Job[bool])
    assert_type(whatever.enqueue("first", more=2), Job[bool])
    assert_type(shapes.enqueue([{"a": 1}], end=None), Job[dict[str, int]])
    assert_type(record.enqueue(title="M", year=1931), Job[Film])


async def through_aenqueue() -> None:
    assert_type(await add.aenqueue(1, b=2), Job[int])
    assert_type(await total.aenqueue(1, 2), Job[int])
    assert_type(await nothing.aenqueue(), Job[None])
    assert_type(await anything.aenqueue(None), Job[None])


def through_call_and_then() -> None:
    assert_type(add.call(1), Call[int])
    assert_type(greet.call(name="you"), Call[str])
    assert_type(tag.call("here", x=1), Call[list[str]])
    assert_type(anything.call(1), Call[None])
    assert_type(add.then(1), Next[int])
    assert_type(greet.then("you", loud=False), Next[str])
    assert_type(nothing.then(), Next[None])
    assert_type(whatever.then(object()), Next[bool])


async def through_using() -> None:
    bound = add.using(delay=5)
    assert_type(bound.enqueue(1, b=2), Job[int])
    assert_type(await bound.aenqueue(1), Job[int])
    assert_type(bound.call(1, 2), Call[int])
    assert_type(bound.then(1), Next[int])
    assert_type(bound.using(priority=1).enqueue(1), Job[int])
    assert_type(greet.using(key="k").enqueue("you", loud=True), Job[str])
    assert_type(nothing.using(label="quiet").call(), Call[None])
    assert_type(tag.using(queue="slow").then("here", "old", x=1), Next[list[str]])


async def calling_just_calls() -> None:
    assert_type(add(1, 2), int)
    assert_type(greet("you", loud=True), str)
    assert_type(tag("here", x=1), list[str])
    nothing()
