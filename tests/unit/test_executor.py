"""Finding A16: awaiting calls have threads of their own."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import ParamSpec

import pytest

from towline import executor as executors
from towline.executor import Executor

P = ParamSpec("P")

FAR = 30.0
ROOT = Path(__file__).resolve().parents[2]
NAME = "towline test"


def awaited(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


@pytest.fixture
def executor() -> Iterator[Executor]:
    executor = Executor("test", 3)
    yield executor
    executor.close()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(FAR):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


@awaited
async def test_it_returns_what_the_call_returns_and_raises_what_it_raises(
    executor: Executor,
) -> None:
    assert await executor.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await executor.run(divmod, 7, 0)


@awaited
async def test_context_variables_are_the_callers(executor: Executor) -> None:
    variable = contextvars.ContextVar("variable", default="nobody's")
    variable.set("mine")

    def change() -> str:
        found = variable.get()
        variable.set("the thread's")
        return found

    assert await executor.run(change) == "mine"
    assert variable.get() == "mine"


@awaited
async def test_as_many_at_a_time_as_it_has_threads_and_the_others_wait(executor: Executor) -> None:
    inside, go = threading.Semaphore(0), threading.Event()

    def stay() -> bool:
        inside.release()
        return go.wait(FAR)

    calls = [asyncio.ensure_future(executor.run(stay)) for _ in range(7)]
    for _ in range(3):
        assert await asyncio.to_thread(inside.acquire, timeout=FAR)
    assert len(threads()) == 3
    assert not inside.acquire(blocking=False)
    go.set()
    assert await asyncio.gather(*calls) == [True] * 7


@awaited
async def test_busy_threads_of_asyncio_keep_nobody_waiting(executor: Executor) -> None:
    """As many as there are; before, an awaiting call came after them."""
    go = threading.Event()
    busy = [asyncio.ensure_future(asyncio.to_thread(go.wait, FAR)) for _ in range(64)]
    await asyncio.sleep(0)
    assert await executor.run(lambda: "done") == "done"
    assert not any(call.done() for call in busy)
    go.set()
    await asyncio.gather(*busy)


@awaited
async def test_who_is_cancelled_in_the_line_is_never_called(executor: Executor) -> None:
    go = threading.Event()
    called: list[int] = []
    busy = [asyncio.ensure_future(executor.run(go.wait, FAR)) for _ in range(3)]
    await until(lambda: len(threads()) == 3)
    waiting = asyncio.ensure_future(executor.run(called.append, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    busy[0].cancel()  # it has begun: it goes on, unheard
    with pytest.raises(asyncio.CancelledError):
        await busy[0]
    go.set()
    assert await asyncio.gather(*busy[1:]) == [True, True]
    assert await executor.run(lambda: "next") == "next"
    assert called == []


@awaited
async def test_idle_threads_end_and_come_again(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "IDLE", 0.01)
    for _ in range(3):
        assert await executor.run(lambda: "done") == "done"
        await until(lambda: not threads())


@awaited
async def test_close_lets_what_was_begun_end_and_it_can_be_used_again(executor: Executor) -> None:
    go = threading.Event()
    calls = [asyncio.ensure_future(executor.run(go.wait, FAR)) for _ in range(5)]
    await until(lambda: len(threads()) == 3)
    executor.close()
    assert await executor.run(lambda: "again") == "again"
    go.set()
    assert await asyncio.gather(*calls) == [True] * 5
    executor.close()
    await until(lambda: not threads())


@awaited
async def test_no_more_threads_is_an_error_only_when_there_is_none(
    executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            await executor.run(lambda: "done")
    go = threading.Event()
    busy = asyncio.ensure_future(executor.run(go.wait, FAR))
    await until(lambda: len(threads()) == 1)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        waiting = asyncio.ensure_future(executor.run(lambda: "done"))
        await asyncio.sleep(0)
    go.set()
    assert (await busy, await waiting) == (True, "done")


@awaited
async def test_an_error_and_what_it_holds_are_not_kept(executor: Executor) -> None:
    class Thing: ...

    seen: list[weakref.ref[Thing]] = []

    def fail() -> None:
        thing = Thing()
        seen.append(weakref.ref(thing))
        raise ValueError(thing)

    gc.disable()
    try:
        with pytest.raises(ValueError, match="Thing"):
            await executor.run(fail)
        await executor.run(lambda: None)
        del fail
        await until(lambda: seen[0]() is None)
    finally:
        gc.enable()


ENDS = """
import asyncio, time
from towline.executor import Executor
executor = Executor("end")
async def main():
    asyncio.ensure_future(executor.run(time.sleep, 3600))
    await executor.run(print, "done")
asyncio.run(main())
"""

FORKS = """
import asyncio, os
from towline.executor import Executor
executor = Executor("fork")
async def use():
    return await executor.run(lambda: "done")
asyncio.run(use())
pid = os.fork()
if pid == 0:
    print(asyncio.run(use()), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print(asyncio.run(use()), flush=True)
"""


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_call_that_does_not_end_does_not_keep_the_program() -> None:
    assert run(ENDS) == "done\n"


def test_it_works_in_a_forked_child() -> None:
    assert run(FORKS).split() == ["done", "done"]
