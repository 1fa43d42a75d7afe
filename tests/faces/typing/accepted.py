"""What type checkers must accept, with the types they must see. Never run, only checked."""

from __future__ import annotations

from typing import Any, assert_type

from windlass import INJECTED, Call, Context, Job, Next, Tasks

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


@tasks.task(queue="mail", max_attempts=3)
def greet(name: str, *, loud: bool = False) -> str:
    return name


@tasks.task
async def fetch(url: str) -> bytes:
    return url.encode()


@tasks.task
def publish(album: int, ctx: Context = INJECTED) -> str:
    return str(ctx.attempt)


@tasks.task
def anything(value: Any) -> None: ...


@tasks.task
def forward(url: str) -> Next[int]:
    return add.then(len(url))


@tasks.task
async def aforward(url: str) -> Next[int]:
    return add.then(len(url))


@tasks.task
def count_down(left: int) -> int | Next[int]:
    if left:
        return count_down.then(left - 1)
    return 0


def calls() -> None:
    assert_type(add(1, 2), int)
    assert_type(add.enqueue(1, b=2), Job[int])
    assert_type(add.enqueue(1).result(timeout=5), int)
    assert_type(greet.enqueue("you", loud=True), Job[str])
    assert_type(greet.using(delay=5, key="k").enqueue("you"), Job[str])
    assert_type(fetch.enqueue("x").result(), bytes)
    assert_type(publish.enqueue(1), Job[str])
    assert_type(forward.enqueue("x").result(), int)
    assert_type(aforward.enqueue("x").result(), int)
    assert_type(count_down.enqueue(3).result(), int)
    assert_type(add.call(1), Call[int])
    assert_type(add.then(1), Next[int])
    anything.enqueue({"free": ["form"]})


async def awaiting() -> None:
    assert_type(await add.aenqueue(1, 2), Job[int])
    assert_type(await greet.using(priority=1).aenqueue("you"), Job[str])
    job = await count_down.aenqueue(1)
    assert_type(await job.aresult(), int)
