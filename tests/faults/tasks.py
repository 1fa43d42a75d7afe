"""The application of the fault proofs: every attempt logs its start and its end as an event."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from tests.faults import event_log
from towline import INJECTED, Backoff, Cancel, Context, Next, Snooze, Towline, context

VARIABLE = "TOWLINE_FAULTS_URL"
QUICKLY = Backoff(first=0.05, cap=0.2)

app = Towline(os.environ.get(VARIABLE, "sqlite:///faults.db"))

# How the jobs of a task may end, once nobody disturbs them any more.
ENDS = {
    "fails": {"failed"},
    "behind_fails": {"failed"},
    "cancels": {"cancelled"},
    "asks_to_exit": {"failed"},
    "takes_all_memory": {"failed"},
    "never_ends": {"failed"},
    "never_matches": {"failed"},
    "crushes": {"completed"},
}
USUALLY = {"completed"}
ANYHOW = "any"  # the label of a job that may end in any state
BORN = "born"  # of a job that a continuation brought along
OWN = "own"  # of a job stored together with a row of the application's


@app.add_middleware
def written_down(ctx: Context) -> Generator[None, Any, None]:
    """The start before the handler, the end behind it, whatever it was."""
    held = ctx._attempt.held
    event_log.write_start(held)
    try:
        yield
    except BaseException as error:
        event_log.write_end(held, type(error).__name__)
        raise
    event_log.write_end(held)


def stamp() -> str:
    token = context().token
    return event_log.stamp_of(token.job_id, token.attempt, token.claimed_at)


def is_sqlite() -> bool:
    return app.url.startswith("sqlite")


def mark(pause: float) -> str:
    """Take a moment, as work does, and return what only this attempt can."""
    if pause:
        time.sleep(pause)
    return stamp()


@app.task
def plain(pause: float = 0.0) -> str:
    return mark(pause)


@app.task
async def awaiting(pause: float = 0.0) -> str:
    await asyncio.sleep(pause)
    return stamp()


@app.task(run_in="process")
def apart(pause: float = 0.0) -> str:
    return mark(pause)


@app.task
def last(pause: float = 0.0) -> str:
    return mark(pause)


@app.task
def first(pause: float = 0.0) -> Next[str]:
    mark(pause)
    return last.then(pause)


@app.task
def join(pause: float = 0.0, ctx: Context = INJECTED) -> str:
    """Behind others: their outputs are there."""
    assert all(isinstance(output, str) for output in ctx.blockers)
    return mark(pause)


@app.task
def splits(number: int) -> Next[str]:
    """Fan out, and in again."""
    return join.using(after=[plain.using(label=BORN).call() for _ in range(number)]).then()


@app.task(max_attempts=2, backoff=QUICKLY)
def fails() -> str:
    raise ValueError("as always")


@app.task
def behind_fails() -> str:
    """Behind one that fails: never run."""
    return stamp()


@app.task
def snoozes(ctx: Context = INJECTED) -> str:
    if ctx.attempt == 1:
        raise Snooze(0.05)
    return stamp()


@app.task
def cancels() -> str:
    raise Cancel("as always")


@app.task
def books(pause: float = 0.0, ctx: Context = INJECTED) -> None:
    """Its row and its end are one commit."""
    text = f"INSERT INTO mine (id) VALUES ({'?' if is_sqlite() else '%s'})"
    if ctx.attempt == 1:
        time.sleep(pause)
    with ctx.transaction() as tx:
        tx.execute(text, (ctx.job_id,))
        tx.complete(stamp())


# ---- handlers that take their time


def gate() -> Path:
    """While this file is there, slow handlers have not begun their pause."""
    return Path(os.environ[event_log.VARIABLE]).with_name("hold")


def hold(folder: Path) -> None:
    (folder / "hold").touch()


def let_go(folder: Path) -> None:
    (folder / "hold").unlink()


@app.task
def slow_at_first(pause: float, ctx: Context = INJECTED) -> str:
    """Its first attempt takes long, and does not listen."""
    while gate().exists():
        time.sleep(0.02)
    return mark(pause if ctx.attempt == 1 else 0)


@app.task(run_in="process")
def slow_apart_at_first(pause: float, ctx: Context = INJECTED) -> str:
    while gate().exists():
        time.sleep(0.02)
    return mark(pause if ctx.attempt == 1 else 0)


@app.task
async def slow_awaiting_at_first(pause: float, ctx: Context = INJECTED) -> str:
    while gate().exists():  # noqa: ASYNC110 - a file is all that processes share here
        await asyncio.sleep(0.02)
    await asyncio.sleep(pause if ctx.attempt == 1 else 0)
    return stamp()


@app.task
def blocks_thread(pause: float) -> str:
    return mark(pause)


@app.task
async def blocks_loop(pause: float) -> str:
    return mark(pause)


@app.task(run_in="process")
def holds_gil_apart(pause: float) -> str:
    """Called through PyDLL, a function of C keeps the GIL."""
    ctypes.PyDLL(None).usleep(round(pause * 1e6))
    return stamp()


@app.task
def holds_gil_at_first(path: str, ctx: Context = INJECTED) -> str:
    """Its first attempt stops all threads of its worker until somebody lets go of the file."""
    if ctx.attempt == 1:
        with open(path) as file:
            ctypes.PyDLL(None).flock(file.fileno(), fcntl.LOCK_EX)
    return stamp()


# ---- poison


@app.task(run_in="process", max_attempts=2, backoff=QUICKLY)
def segfaults() -> str:
    return str(ctypes.string_at(0))


@app.task(run_in="process", max_attempts=2, backoff=QUICKLY)
def exits_at_once() -> str:
    os._exit(9)


@app.task(run_in="process", max_attempts=2, backoff=QUICKLY)
def takes_all_memory() -> str:
    """More than the limit of its process, piece by piece."""
    taken = []
    while True:
        taken.append(bytearray(1 << 20))


@app.task(run_in="process", max_attempts=2, backoff=QUICKLY)
def asks_to_exit() -> str:
    sys.exit(5)


@app.task(run_in="process", max_attempts=2, backoff=QUICKLY)
def overflows_the_stack() -> str:
    """Through C at each step, so that it is the C stack that is used up. In a thread with little of
    it: Python 3.12 and later allow fewer steps than the first thread has room for."""
    sys.setrecursionlimit(10**9)

    def deeper(_: int) -> int:
        return sum(map(deeper, [0]))

    threading.stack_size(128 * 1024)
    thread = threading.Thread(target=deeper, args=(0,))
    thread.start()
    thread.join()
    return "it did not overflow"


@app.task(run_in="process", max_attempts=2, backoff=QUICKLY, timeout=1.0)
def never_ends() -> str:
    while True:
        pass


@app.task(run_in="process", max_attempts=2, backoff=QUICKLY, timeout=1.0)
def never_matches() -> str:
    """Inside one call of C, which holds the GIL."""
    return str(re.match(r"(a+)+$", "a" * 64 + "b"))


@app.task(max_attempts=2)
def segfaults_in_a_thread() -> str:
    return str(ctypes.string_at(0))


@app.task(max_attempts=2)
def kills_its_worker() -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "it lives"


@app.chunk(size=20, wait=1.0, max_attempts=2, backoff=QUICKLY)
def crushes(items: list[int]) -> None:
    """One item that is -1 takes the process with it, and with that the others for this once."""
    if -1 in items:
        ctypes.string_at(0)


# ---- quick and slow ones


@app.task
def silent() -> None:
    """As quick as a job can be."""


@app.task
def nap(seconds: float) -> None:
    time.sleep(seconds)


@app.task
def parent() -> None:
    """Wait for a job of one's own."""
    silent.enqueue().result(timeout=100)
