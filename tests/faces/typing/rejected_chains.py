"""Continuations that end in another type than was said: exactly the lines that end in `# no`."""

from __future__ import annotations

from towline import Next, Retry, Tasks

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


@tasks.task
def name(number: int) -> str:
    return str(number)


@tasks.task
def wrong_end(number: int) -> Next[str]:
    return add.then(number)  # no


@tasks.task
async def wrong_end_awaiting(number: int) -> Next[str]:
    return add.then(number)  # no


@tasks.task
def wrong_branch(number: int) -> int | Next[int]:
    if number:
        return name.then(number)  # no
    return 0


@tasks.task
async def wrong_branch_awaiting(number: int) -> int | Next[int]:
    if number:
        return name.using(delay=1).then(number)  # no
    return "zero"  # no


@tasks.task
def wrong_circle(left: int) -> int | Next[int]:
    if left:
        return wrong_circle.then(str(left))  # no
    return 0


@tasks.task
def circle_of_another_type(left: int) -> str | Next[str]:
    return add.then(left) if left else "none"  # no


@tasks.task
def unsaid(number: int) -> int:
    return add.then(number)  # no


@tasks.task
def said_only(number: int) -> Next[int]:
    return number  # no


@tasks.task
def called(number: int) -> Next[int]:
    return add.call(number)  # no


@tasks.task
def stored(number: int) -> Next[int]:
    return add.enqueue(number)  # no


@tasks.task
def itself(number: int) -> Next[int]:
    return add  # no


@tasks.task
def unsaid_retry(number: int) -> int:
    return Retry(delay=5)  # no


@tasks.task
def maybe(number: int) -> Next[int] | None:
    return add.then(number) if number else None


@tasks.task
def another(number: int) -> int | Next[str]:
    return number


@tasks.task
def again(number: int) -> int | Next[int] | Retry:
    return Retry(delay=5)


def takes_int(value: int) -> None: ...
def takes_text(value: str) -> None: ...


async def results() -> None:
    takes_text(add.enqueue(1).result())  # no
    takes_text(again.enqueue(1).result())  # no
    takes_int(wrong_end.enqueue(1).result())  # no
    takes_int(maybe.enqueue(1).result())  # no
    takes_int(another.enqueue(1).result())  # no
    takes_text(await (await add.aenqueue(1)).aresult())  # no
    takes_text(wrong_branch_awaiting.enqueue(1).result())  # no
