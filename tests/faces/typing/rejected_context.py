"""An injected Context that is given, wanted or misread: exactly the lines that end in `# no`."""

from __future__ import annotations

from typing import Any

from towline import INJECTED, Context, Tasks, context

tasks = Tasks()


@tasks.task
def publish(album: int, ctx: Context = INJECTED) -> str:
    return str(ctx.attempt)


@tasks.task
def alone(ctx: Context = INJECTED) -> None: ...


@tasks.task
def by_keyword(album: int, *, ctx: Context = INJECTED) -> None: ...


@tasks.task
def in_front(ctx: Context = INJECTED, album: int = 0) -> None: ...


@tasks.task
def behind_anything(value: Any, ctx: Context = INJECTED) -> None: ...


@tasks.task
def without_default(album: int, ctx: Context) -> None: ...


async def calls() -> None:
    publish.enqueue("first")  # no
    publish.enqueue()  # no
    publish.enqueue(1, "context")  # no
    publish.enqueue(1, ctx=None)  # no
    publish.call(1, 2)  # no
    publish.then(1, ctx=3)  # no
    await publish.aenqueue(1, {})  # no
    publish.using(delay=1).enqueue(1, "context")  # no
    alone.enqueue(1)  # no
    by_keyword.enqueue(1, 2)  # no
    by_keyword.enqueue(1, ctx=2)  # no
    in_front.enqueue(2)  # no
    behind_anything.enqueue()  # no
    behind_anything.enqueue(1, 2)  # no
    without_default.enqueue(1)  # no


@tasks.task
def wrong_default(album: int, ctx: Context = None) -> None: ...  # no


def takes_text(value: str) -> None: ...


def what_it_knows(ctx: Context) -> None:
    print(ctx.atempt)  # no
    takes_text(ctx.job_id)  # no
    takes_text(ctx.label)  # no
    ctx.attempt = 3  # no
    ctx.progress("half way")  # no
    ctx.progress(0.5, 1)  # no
    context(1)  # no


def what_it_waited_for(ctx: Context) -> None:
    ctx.blockers.get()  # no
    ctx.blockers.get(1.5, int)  # no
    takes_text(ctx.blockers.get("sizes", int))  # no
    takes_text(ctx.blockers.get("caption", str))  # no
    print(ctx.blockers.nmaes)  # no
