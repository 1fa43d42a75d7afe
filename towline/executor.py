"""Threads in which an engine runs the calls of coroutines.

asyncio's own are few and shared: eight handlers that sleep in `asyncio.to_thread` would keep
every `await task.aenqueue()` waiting. These are the engine's alone, end when idle for a while, and
never delay the end of the program.
"""

from __future__ import annotations

import contextvars
import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

LIMIT = 32
IDLE = 5.0  # seconds after which a thread without work ends


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`asyncio.to_thread`, for modules that programs without a loop import too: asyncio takes a
    third of the time of all that they import."""
    import asyncio

    return await asyncio.to_thread(function, *args, **kwargs)


class Executor:
    """At most `limit` daemon threads, started when there is work for them; a forked child has
    threads of its own."""

    def __init__(self, name: str, limit: int = LIMIT) -> None:
        self._new = partial(_Line, f"towline {name}", limit)
        self._line = self._new()
        _executors.add(self)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it in a thread, with the caller's context variables. Cancelled before it has begun
        it is never called; afterwards it goes on to its end, unheard."""
        import asyncio  # who awaits this has it

        context = contextvars.copy_context()
        future: Future[T] = Future()
        self._line.add(future, partial(context.run, function, *args, **kwargs))
        try:
            return await asyncio.wrap_future(future)
        finally:
            del future  # or error, traceback, this frame and the future keep each other

    def close(self) -> None:
        """Let the threads end when they have done what was asked of them; using it again starts
        new ones."""
        line, self._line = self._line, self._new()
        line.end()


class _Line:
    """Calls that wait, and the threads that take them."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._threads = 0
        self._free = 0  # threads that wait, less the calls they will find

    def add(self, future: Future[Any], call: Callable[[], Any]) -> None:
        with self._mutex:
            if self._free <= 0 and self._threads < self._limit:
                try:
                    threading.Thread(target=self._serve, name=self._name, daemon=True).start()
                except RuntimeError:  # no more threads: those there are have to do
                    if not self._threads:
                        raise
                else:
                    self._threads += 1
                    self._free += 1
            self._free -= 1
            self._calls.put((future, call))

    def end(self) -> None:
        with self._mutex:
            for _ in range(self._threads):
                self._calls.put(None)

    def _serve(self) -> None:
        while True:
            try:
                found = self._calls.get(timeout=IDLE)
            except queue.Empty:
                with self._mutex:
                    if self._free <= 0:  # one was put for us just now
                        continue
                    self._free -= 1
                    self._threads -= 1
                return
            if found is None:
                return
            _settle(*found)
            del found  # not kept until the next one comes
            with self._mutex:
                self._free += 1


def _settle(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
        del future  # as above
    else:
        future.set_result(result)


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()


def _after_in_child() -> None:
    """There are no threads, and no call waits for what they did."""
    for executor in list(_executors):
        executor._line = executor._new()


os.register_at_fork(after_in_child=_after_in_child)
