"""A chain has the type of its last output, however it gets there. Never run, only checked."""

from __future__ import annotations

from typing import assert_type

from towline import INJECTED, Call, Context, Job, Next, Retry, Snooze, Tasks

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


@tasks.task
def name(number: int) -> str:
    return str(number)


@tasks.task
def forward(url: str) -> Next[int]:
    return add.then(len(url))


@tasks.task
def forward_twice(url: str) -> Next[int]:
    return forward.then(url)


@tasks.task
async def aforward(url: str) -> Next[int]:
    return add.using(delay=1).then(len(url))


@tasks.task
def count_down(left: int) -> int | Next[int]:
    if left:
        return count_down.then(left - 1)
    return 0


@tasks.task
async def acount_down(left: int) -> int | Next[int]:
    if left:
        return acount_down.using(priority=1).then(left - 1)
    return 0


@tasks.task
def for_ever(number: int) -> Next[str]:
    return for_ever.then(number + 1)


@tasks.task
def branch(number: int) -> Next[str]:
    return name.then(number) if number else for_ever.then(number)


@tasks.task
def maybe(number: int) -> str | Next[str] | None:
    if number == 1:
        return "one"
    return name.then(number) if number else None


@tasks.task
def retold(number: int) -> str | Next[str]:
    return branch.then(number) if number else "zero"


@tasks.task(queue="slow")
def decorated(number: int, ctx: Context = INJECTED) -> int | Next[int]:
    return count_down.then(number)


@tasks.task(max_attempts=2)
async def adecorated(number: int) -> Next[int]:
    return decorated.then(number)


@tasks.task
def of_a_subclass(number: int) -> Next[float]:
    return add.then(number)


@tasks.task
def either(number: int) -> Next[int] | Next[bool]:
    return add.then(number) if number else yes.then()


@tasks.task
def yes() -> bool:
    return True


@tasks.task
def nothing_to_do(number: int) -> Next[int] | None:
    return add.then(number) if number else None


@tasks.task
def another_type(number: int) -> int | Next[str]:
    return name.then(number) if number else 0


@tasks.task
async def a_wider_type(number: int) -> bool | Next[int]:
    return add.then(number) if number else False


@tasks.task
def one_of_two(number: int) -> Next[int | str]:
    return add.then(number) if number else name.then(number)


@tasks.task
def several_types(number: int) -> int | str | None:
    return number


@tasks.task
def asks_again(number: int) -> int | Retry:
    return Retry(delay=5)


@tasks.task
async def asks_in_every_way(number: int) -> int | Next[int] | Retry | Snooze:
    return Snooze(delay=5)


def takes_int(value: int) -> None: ...


async def ends() -> None:
    takes_int(either.enqueue(3).result())
    assert_type(forward.enqueue("x").result(), int)
    assert_type(forward_twice.enqueue("x").result(), int)
    assert_type(aforward.enqueue("x").result(), int)
    assert_type(await (await aforward.aenqueue("x")).aresult(), int)
    assert_type(count_down.enqueue(3).result(timeout=5), int)
    assert_type(await (await count_down.aenqueue(1)).aresult(), int)
    assert_type(acount_down.enqueue(3).result(), int)
    assert_type(for_ever.enqueue(3).result(), str)
    assert_type(branch.enqueue(3).result(), str)
    assert_type(maybe.enqueue(3).result(), str | None)
    assert_type(retold.enqueue(3).result(), str)
    assert_type(decorated.enqueue(3).result(), int)
    assert_type(adecorated.enqueue(3).result(), int)
    assert_type(of_a_subclass.enqueue(3).result(), float)
    assert_type(count_down.using(key="k").enqueue(3).result(), int)
    assert_type(nothing_to_do.enqueue(3).result(), int | None)
    assert_type(another_type.enqueue(3).result(), int | str)
    assert_type(a_wider_type.enqueue(3).result(), bool | int)
    assert_type(one_of_two.enqueue(3).result(), int | str)
    assert_type(several_types.enqueue(3).result(), int | str | None)
    assert_type(asks_again.enqueue(3).result(), int)
    assert_type(asks_in_every_way.enqueue(3).result(), int)


def steps() -> None:
    assert_type(add.then(1), Next[int])
    assert_type(count_down.then(1), Next[int])
    assert_type(count_down.using(delay=1).then(1), Next[int])
    assert_type(forward.then("x"), Next[int])
    assert_type(maybe.then(1), Next[str | None])
    assert_type(forward.call("x"), Call[int])
    assert_type(forward.enqueue("x"), Job[int])
    assert_type(count_down.enqueue(1), Job[int])


async def calling_just_calls() -> None:
    """Finding B6: calling gives what the function gives, a `Next` too."""
    assert_type(add(1), int)
    assert_type(forward("x"), Next[int])
    assert_type(await aforward("x"), Next[int])
    assert_type(several_types(3), int | str | None)
    assert_type(await adecorated(3), Next[int])
