"""Tasks with run_in="process", at module level where another process finds them.

The database is the one the environment names. Handlers and tests meet at files.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextvars import ContextVar
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from towline import INJECTED, Backoff, Context, Next, Towline, context

match os.environ.get("TOWLINE_TEST_IMPORT"):
    case "raise":
        raise RuntimeError("cannot be imported now")
    case "vanish":
        os._exit(7)
    case "hang":
        time.sleep(600)

app = Towline()
AT_ONCE = Backoff(first=0)
NUMBERS: dict[str, Any] = {
    "Decimal": Decimal("0.5"),
    "Fraction": Fraction(1, 2),
    "bool": True,
    "float": 0.5,
}


class Words(str):
    """A str of a kind of its own."""


LIMIT = 60.0  # seconds a handler waits for its test
wrapped: ContextVar[str] = ContextVar("wrapped", default="not wrapped")


@app.add_middleware
def wrap(ctx: Context) -> Generator[None, Any, None]:
    wrapped.set(f"around {ctx.task}")
    yield


def write(path: str, text: object) -> None:
    """All at once, for a test that looks at any moment."""
    Path(f"{path}.new").write_text(str(text))
    os.rename(f"{path}.new", path)


def meet(path: str, text: object = "") -> None:
    """Say that the handler is here, and wait until the test takes the file away."""
    write(path, text)
    end = time.monotonic() + LIMIT
    while os.path.exists(path):
        if time.monotonic() > end:
            raise TimeoutError("the test never came")
        time.sleep(0.005)


@app.task(run_in="process")
def add(a: int, b: int) -> int:
    return a + b


@app.task(run_in="process")
async def aadd(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@app.task
def thread_process() -> int:
    return os.getpid()


@app.task
async def loop_process() -> int:
    return os.getpid()


@app.task(run_in="process")
def own_process() -> int:
    return os.getpid()


@app.task(run_in="process")
def halt(path: str) -> int:
    meet(path, os.getpid())
    return os.getpid()


@app.task(run_in="process")
def add_then(a: int, b: int) -> Next[int]:
    return add.using(label="second").then(a, b)


@app.task(run_in="process")
def total(ctx: Context = INJECTED) -> int:
    return sum(ctx.blockers)


@app.task(run_in="process")
def seen() -> list[Any]:
    ctx = context()
    return [wrapped.get(), ctx.task, ctx.attempt, list(ctx.token)]


@app.task(run_in="process")
def half(path: str, ctx: Context = INJECTED) -> None:
    for step in range(1000):
        ctx.progress(step / 2000, "on the way \udcff")
    ctx.progress(0.5, "half")
    meet(path)


@app.task(run_in="process", max_attempts=1)
def report(kind: str, ctx: Context = INJECTED) -> str:
    ctx.progress(NUMBERS[kind], Words("so far"))
    return "done"


@app.task(run_in="process")
def tell(number: int, ctx: Context = INJECTED) -> int:
    ctx.progress(number / 1000, str(number))
    return number


@app.task(run_in="process")
def note(path: str, ctx: Context = INJECTED) -> None:
    """Writes which attempt was called, and where."""
    with open(path, "a", encoding="ascii") as file:
        file.write(f"{ctx.job_id} {ctx.attempt} {os.getpid()}\n")


@app.task(run_in="process", max_attempts=1)
def unsayable(ctx: Context = INJECTED) -> str:
    nonsense: Any = object(), None
    ctx._attempt.report(*nonsense)
    return "done"


@app.task(run_in="process")
def logs(ctx: Context = INJECTED) -> None:
    ctx.log.info("%d %% done", 50, extra={"order": 7})
    own = logging.getLogger("shop.own")
    own.info("a line of its own")
    own.debug("too quiet")
    try:
        raise ValueError("as expected")
    except ValueError:
        own.exception("it went wrong")


@app.task(run_in="process")
def shout(text: str) -> str:
    print(text)
    print(text, file=sys.stderr)
    os.write(1, text.encode())
    assert sys.stdin.read() == ""
    return text


@app.task(run_in="process", max_attempts=1)
def settle(statement: str, ctx: Context = INJECTED) -> str:
    with ctx.transaction() as tx:
        tx.execute(statement)
        tx.complete("inside")
    return "ignored"


@app.task(run_in="process")
def settle_and_die(statement: str, ctx: Context = INJECTED) -> str:
    with ctx.transaction() as tx:
        tx.execute(statement)
        tx.complete("inside")
    os._exit(9)


# ---- handlers that do not stop


@app.task(run_in="process", max_attempts=1)
def spin(path: str | None = None) -> None:
    if path is not None:
        write(path, os.getpid())
    while True:
        pass


@app.task(run_in="process", max_attempts=1)
def search(path: str | None = None) -> None:
    """An endless regular expression, which holds the interpreter all the time."""
    if path is not None:
        write(path, os.getpid())
    re.match(r"(a+)+$", "a" * 80 + "b")


@app.task(run_in="process", max_attempts=1)
def spin_beside(path: str) -> None:
    """Starts a program, then never ends."""
    sleeper = subprocess.Popen(["sleep", "600"])
    write(path, sleeper.pid)
    while True:
        pass


@app.task(run_in="process")
def stops(path: str, ctx: Context = INJECTED) -> str:
    write(path, os.getpid())
    return "stopped by itself" if ctx.stop.wait(LIMIT) and ctx.cancelled else "never told"


@app.task(run_in="process")
async def waits(path: str) -> None:
    write(path, os.getpid())
    try:
        await asyncio.sleep(LIMIT)
    except asyncio.CancelledError:
        write(path + ".told", "cancelled")
        raise


# ---- handlers that take their process with them, or try to


@app.task(run_in="process")
def vanish(status: int) -> None:
    os._exit(status)


@app.task(run_in="process")
def segfault() -> None:
    ctypes.string_at(0)


@app.task(run_in="process")
def overflow() -> None:
    """Too deep for the C stack. In a thread with little of it: Python 3.12 and later allow fewer
    calls through C than the first thread has room for."""

    class Deep:
        def __getattr__(self, name: str) -> Any:
            return getattr(self, name)

    sys.setrecursionlimit(2**30)
    threading.stack_size(128 * 1024)
    thread = threading.Thread(target=getattr, args=(Deep(), "bottom"))
    thread.start()
    thread.join()


@app.task(run_in="process")
def fork_and_vanish(path: str) -> None:
    """The forked one goes on."""
    if os.fork() == 0:
        meet(path)
        os._exit(0)
    os._exit(5)


@app.task(run_in="process", max_attempts=1)
def recurse() -> None:
    recurse()


@app.task(run_in="process", max_attempts=2, backoff=AT_ONCE)
def leave() -> None:
    sys.exit(3)


@app.task(run_in="process", max_attempts=2, backoff=AT_ONCE)
def break_off() -> None:
    raise KeyboardInterrupt


later = asyncio.Event()
left_behind: list[asyncio.Task[None]] = []


async def _exit_later() -> None:
    await later.wait()
    sys.exit(3)


@app.task(run_in="process", max_attempts=1)
async def leave_from_a_task() -> None:
    later.set()
    await asyncio.create_task(_exit_later())


@app.task(run_in="process", max_attempts=1)
async def leave_a_task_behind() -> int:
    later.clear()
    left_behind.append(asyncio.create_task(_exit_later()))
    await asyncio.sleep(0)
    return os.getpid()


@app.task(run_in="process", max_attempts=1)
async def meet_what_was_left_behind() -> int:
    later.set()
    while not left_behind[0].done():  # noqa: ASYNC110
        await asyncio.sleep(0)
    return os.getpid()


@app.task(run_in="process", max_attempts=1)
async def stop_the_loop() -> int:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    return os.getpid()


@app.task(run_in="process", max_attempts=1)
def hoard(megabytes: int) -> int:
    return len(bytearray(megabytes << 20)) >> 20


kept: list[bytearray] = []


@app.task(run_in="process", max_attempts=1)
def keep(megabytes: int) -> int:
    kept.append(bytearray(megabytes << 20))
    return os.getpid()


@app.task(run_in="process", max_attempts=1)
def hoard_slowly() -> None:
    """Piece by piece, until not even an error has room."""
    more: list[Any] = []
    while True:
        more.append([object() for _ in range(1000)])
