"""Sets of tasks and apps register alike; tasks keep their types. Never run, only checked."""

from __future__ import annotations

from typing import Any, assert_type

from towline import Job, Next, Task, Tasks, Towline

mail = Tasks()
app = Towline("sqlite:///app.db")


@mail.task
def send(to: str) -> int:
    return len(to)


@mail.task(queue="mail")
async def asend(to: str) -> int:
    return len(to)


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(max_attempts=1)
def forward(a: int) -> Next[int]:
    return add.then(a, b=a)


class Shop:
    @app.task
    @staticmethod
    def order(number: int) -> str:
        return str(number)


def double(a: int) -> int:
    return 2 * a


doubled = app.task(double)
redoubled = app.task(name="redouble")(double)


def included() -> None:
    app.include(mail)
    app.include(mail, prefix="mail.")
    assert_type(mail.registry, dict[str, Task[..., Any]])
    assert_type(app.registry, dict[str, Task[..., Any]])


def types_stay() -> None:
    task: Task[[str], int] = send
    assert_type(task.enqueue("you"), Job[int])
    assert_type(asend.enqueue("you"), Job[int])
    assert_type(add.enqueue(1, b=2), Job[int])
    assert_type(forward.enqueue(1), Job[int])
    assert_type(Shop.order.enqueue(1), Job[str])
    assert_type(Shop().order.enqueue(1), Job[str])
    assert_type(doubled.enqueue(a=1), Job[int])
    assert_type(redoubled.enqueue(1), Job[int])
    assert_type(send.name, str)
