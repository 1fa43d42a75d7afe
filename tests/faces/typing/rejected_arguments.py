"""Arguments that do not fit, through every way of calling: exactly the lines that end in `# no`."""

from __future__ import annotations

from typing import Any

from towline import Tasks

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


@tasks.task
def greet(name: str, *, loud: bool = False) -> str:
    return name


@tasks.task
def move(x: float, y: float, /) -> None: ...


@tasks.task
def total(*numbers: int, **named: int) -> int:
    return sum(numbers)


@tasks.task
def nothing() -> None: ...


@tasks.task
def anything(value: Any) -> None: ...


@tasks.task
def whatever(value: object, more: int = 0) -> None: ...


@tasks.task
def rows(content: list[dict[str, int]]) -> None: ...


@tasks.task
async def fetch(url: str) -> bytes:
    return url.encode()


def enqueue() -> None:
    add.enqueue("one")  # no
    add.enqueue(None)  # no
    add.enqueue(1.5)  # no
    add.enqueue(1, "two")  # no
    add.enqueue(1, b="two")  # no
    add.enqueue()  # no
    add.enqueue(b=1)  # no
    add.enqueue(1, 2, 3)  # no
    add.enqueue(1, c=3)  # no
    add.enqueue(1, a=1)  # no
    add.enqueue([1, 2])  # no
    greet.enqueue("you", True)  # no
    greet.enqueue("you", loud="yes")  # no
    greet.enqueue(loud=True)  # no
    move.enqueue(1.0)  # no
    move.enqueue(x=1.0, y=2.0)  # no
    total.enqueue("one")  # no
    total.enqueue(1, *["two"])  # no
    total.enqueue(extra="three")  # no
    nothing.enqueue(None)  # no
    anything.enqueue()  # no
    anything.enqueue(1, 2)  # no
    anything.enqueue(wrong=1)  # no
    whatever.enqueue()  # no
    whatever.enqueue(1, "more")  # no
    rows.enqueue([{"a": "b"}])  # no
    rows.enqueue({"a": 1})  # no
    fetch.enqueue(1)  # no


async def aenqueue() -> None:
    await add.aenqueue("one")  # no
    await add.aenqueue()  # no
    await add.aenqueue(1, 2, 3)  # no
    await add.aenqueue(1, c=3)  # no
    await nothing.aenqueue(1)  # no
    await fetch.aenqueue(b"x")  # no


def call() -> None:
    add.call("one")  # no
    add.call()  # no
    add.call(1, 2, 3)  # no
    add.call(1, c=3)  # no
    greet.call("you", True)  # no
    fetch.call(url=1)  # no


def then() -> None:
    add.then("one")  # no
    add.then()  # no
    add.then(1, 2, 3)  # no
    add.then(1, c=3)  # no
    move.then(1.0, y=2.0)  # no
    fetch.then(1)  # no


async def using() -> None:
    add.using(delay=1).enqueue("one")  # no
    add.using(delay=1).enqueue()  # no
    add.using(delay=1).enqueue(1, 2, 3)  # no
    add.using(delay=1).enqueue(1, c=3)  # no
    await add.using(delay=1).aenqueue("one")  # no
    await add.using(delay=1).aenqueue()  # no
    await add.using(delay=1).aenqueue(1, 2, 3)  # no
    await add.using(delay=1).aenqueue(1, c=3)  # no
    add.using(delay=1).call("one")  # no
    add.using(delay=1).call()  # no
    add.using(delay=1).call(1, 2, 3)  # no
    add.using(delay=1).call(1, c=3)  # no
    add.using(delay=1).then("one")  # no
    add.using(delay=1).then()  # no
    add.using(delay=1).then(1, 2, 3)  # no
    add.using(delay=1).then(1, c=3)  # no
    add.using(delay=1).using(priority=2).enqueue("one")  # no
    await fetch.using(key="k").aenqueue(2)  # no


def calling_just_calls() -> None:
    add("one")  # no
    add(1, 2, 3)  # no
    greet("you", True)  # no
