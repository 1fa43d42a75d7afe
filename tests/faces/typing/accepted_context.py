"""An injected Context needs no argument, wherever it stands. Never run, only checked."""

from __future__ import annotations

from typing import Any, Literal, assert_type

from towline import INJECTED, Call, Context, Failure, Job, Next, Tasks, context
from towline.task.context import Blockers

tasks = Tasks()


@tasks.task
def publish(album: int, ctx: Context = INJECTED) -> str:
    return str(ctx.attempt)


@tasks.task
def with_outputs(album: int, sizes: list[int] = INJECTED, name: str = INJECTED) -> str:
    return f"{name}: {sum(sizes)}"


assert_type(with_outputs.using(after={"sizes": 1, "name": 2}).enqueue(7), Job[str])
assert_type(with_outputs(7, [1, 2], "x"), str)


@tasks.task(backoff=lambda attempt: 2.0 * attempt)
def with_previous(ctx: Context = INJECTED) -> str | None:
    assert_type(ctx.stopped_for, Literal["cancelled", "timeout", "lost", "stopping"] | None)
    return None if ctx.previous is None else ctx.previous.error


@tasks.task
def alone(ctx: Context = INJECTED) -> int:
    return ctx.job_id


@tasks.task
def by_keyword(album: int, *, size: int = 1, ctx: Context = INJECTED) -> int:
    return size


@tasks.task
def in_front(ctx: Context = INJECTED, album: int = 0) -> int:
    return album


@tasks.task
def behind_anything(value: Any, ctx: Context = INJECTED) -> None: ...


@tasks.task
def behind_an_object(value: object, ctx: Context = INJECTED) -> None: ...


@tasks.task
def between(a: int, b: int = 2, *rest: int, ctx: Context = INJECTED, **options: str) -> None: ...


@tasks.task
async def awaiting(album: int, ctx: Context = INJECTED) -> bytes:
    return b""


async def calls() -> None:
    assert_type(publish.enqueue(1), Job[str])
    assert_type(await publish.aenqueue(album=1), Job[str])
    assert_type(publish.using(delay=1).enqueue(1), Job[str])
    assert_type(publish.call(1), Call[str])
    assert_type(publish.then(1), Next[str])
    assert_type(alone.enqueue(), Job[int])
    assert_type(by_keyword.enqueue(1, size=2), Job[int])
    assert_type(in_front.enqueue(album=2), Job[int])
    behind_anything.enqueue(["what", 1])
    behind_an_object.enqueue("first")
    between.enqueue(1, 2, 3, 4, more="x")
    assert_type(awaiting.enqueue(1), Job[bytes])


def direct_calls(ctx: Context) -> None:
    """Calling it just calls it: a test hands in a context of its own."""
    assert_type(publish(1, ctx), str)
    assert_type(publish(1, ctx=ctx), str)


def what_it_knows(ctx: Context) -> None:
    assert_type(context(), Context)
    assert_type(ctx.job_id, int)
    assert_type(ctx.chain_id, int)
    assert_type(ctx.task, str)
    assert_type(ctx.queue, str)
    assert_type(ctx.label, str | None)
    assert_type(ctx.attempt, int)
    assert_type(ctx.max_attempts, int)
    assert_type(ctx.trace, str | None)
    assert_type(ctx.token.claimed_at, int)


async def what_it_does(ctx: Context) -> None:
    ctx.progress(0.5, "half way")
    ctx.progress(text="still there")
    assert_type(ctx.cancelled, bool)
    with ctx.transaction() as tx:
        tx.execute("UPDATE album SET published = 1")
        tx.complete("done")
    async with ctx.transaction(on=object()) as tx:
        tx.complete(publish.then(1))


def what_it_waited_for(ctx: Context) -> None:
    """A blocker's task is known when the job runs, so its type is said by who asks."""
    assert_type(ctx.blockers, Blockers)
    assert_type(ctx.blockers.names, tuple[str | None, ...])
    assert_type(ctx.blockers.get("sizes", int), int | Failure)
    assert_type(ctx.blockers.get(0, str), str | Failure)
    assert_type(ctx.blockers.get("sizes", type=int), int | Failure)
    assert_type(ctx.blockers.get("sizes"), Any)
    assert_type(ctx.blockers.get("sizes", 0), Any)
    assert_type(ctx.blockers.get("sizes", default=None), Any)
    assert_type("sizes" in ctx.blockers, bool)
    assert_type(ctx.blockers.keys(), tuple[int | str, ...])
    assert_type(ctx.blockers.values(), tuple[Any, ...])
    assert_type(ctx.blockers.items(), tuple[tuple[int | str, Any], ...])
    sizes, caption = ctx.blockers
    assert_type(sizes, Any)
    assert_type(caption, Any)
    assert_type(ctx.blockers["sizes"], Any)
    assert_type(ctx.blockers[0], Any)
    found = ctx.blockers.get("caption", str)
    if isinstance(found, Failure):
        assert_type(found.reason, str | None)
    else:
        assert_type(found, str)
