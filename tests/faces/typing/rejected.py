"""What type checkers must reject: exactly the lines that end in `# no`. Never run, only checked."""

from __future__ import annotations

from windlass import INJECTED, Context, Next, Tasks

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


@tasks.task
async def fetch(url: str) -> bytes:
    return url.encode()


@tasks.task
def publish(album: int, ctx: Context = INJECTED) -> str:
    return str(ctx.attempt)


def calls() -> None:
    add.enqueue("one")  # no
    add.enqueue()  # no
    add.enqueue(1, 2, 3)  # no
    add.enqueue(1, c=3)  # no
    add.using(delay=1).enqueue("one")  # no
    add.using(dealy=1)  # no
    add.call("one")  # no
    add.then(1, "two")  # no
    fetch.enqueue(1)  # no
    publish.enqueue("first")  # no
    result: str = add.enqueue(1).result()  # no
    print(result)


async def awaiting() -> None:
    await add.aenqueue("one")  # no
    await fetch.using(key="k").aenqueue(2)  # no


@tasks.task
def wrong_end(x: int) -> Next[str]:
    return add.then(x)  # no
