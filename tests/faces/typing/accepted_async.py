"""Async tasks are typed by what they return, not by a coroutine. Never run, only checked."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

from towline import Call, Job, Next, Tasks, Towline

tasks = Tasks()


@tasks.task
async def fetch(url: str, *, retries: int = 1) -> bytes:
    return url.encode()


@tasks.task(queue="slow", timeout=5)
async def store(content: bytes) -> None: ...


@tasks.task
async def relay(url: str) -> bytes | Next[bytes]:
    return fetch.then(url)


def blocking() -> None:
    """An async task is enqueued by blocking code too."""
    assert_type(fetch.enqueue("x"), Job[bytes])
    assert_type(fetch.enqueue("x", retries=2).result(), bytes)
    assert_type(fetch.call("x"), Call[bytes])
    assert_type(fetch.then("x"), Next[bytes])
    assert_type(store.enqueue(b""), Job[None])
    assert_type(relay.enqueue("x").result(), bytes)


async def awaiting(app: Towline) -> None:
    job = await fetch.aenqueue("x")
    assert_type(job, Job[bytes])
    assert_type(await job.aresult(timeout=5), bytes)
    assert_type(await job.arefresh(), Job[bytes])
    assert_type(await job.acancel("why"), Job[bytes])
    assert_type(await job.aretry(), Job[bytes])
    assert_type(await (await relay.aenqueue("x")).aresult(), bytes)
    coming: Coroutine[Any, Any, Job[bytes]] = fetch.aenqueue("x")
    assert_type(await coming, Job[bytes])
    assert_type(await app.aenqueue_many([fetch.call("x"), store.call(b"")]), list[Job[Any]])


async def calling_just_calls() -> None:
    """Finding B6: calling gives what the function gives."""
    assert_type(await fetch("x"), bytes)
    assert_type(await fetch("x", retries=2), bytes)
    await store(b"")
