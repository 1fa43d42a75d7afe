"""Crash points: a process that dies right before or right after an operation of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..app import Towline
from ..errors import InvalidSetting
from ..operation import Op

T = TypeVar("T")
NAME = "drain"  # how the registrations of `drain` begin


class Crash(BaseException):
    """Raised where the process is supposed to die; no handler's `except Exception` survives it."""


@contextmanager
def crash_at(app: Towline, operation: str, *, before: bool = True) -> Iterator[None]:
    """Let whatever the block does die at an operation: "finish", "claim", "enqueue", …

    `before`: it is not begun. Otherwise it is committed and nobody learns of it; with `on=` it has
    run and the caller's transaction is still open. The block ends there. What ran then is recorded
    as lost, as after the death of a worker: it comes back after its back-off, until the crash
    limit. Fails if nothing came to the operation.
    """
    if operation.startswith("_") or not callable(getattr(app.store, operation, None)):
        raise InvalidSetting(
            f'{operation!r} is no operation of the store, such as "enqueue", "claim" or "finish"'
        )
    point = Point(app, operation, before)
    app.__dict__.update(run=point.run, arun=point.arun)
    try:
        yield
    except Crash:
        pass
    finally:
        for name in ("run", "arun"):
            app.__dict__.pop(name, None)
    if not point.reached:
        raise AssertionError(f"nothing came to {operation}, so nothing crashed")
    lose_workers(app)


def lose_workers(app: Towline) -> None:
    """What a sweep finds when a drain has died: its jobs are taken back, its row goes."""
    gone = [worker.id for worker in app.workers() if worker.name.startswith(NAME)]
    while app.run(app.store.sweep((), gone)) > 0:
        pass


class Point:
    """Stands in front of an app's `run` and `arun`; crashes once, then lets everything pass."""

    def __init__(self, app: Towline, operation: str, before: bool) -> None:
        self._run, self._arun = app.run, app.arun
        self._operation = operation
        self._before = before
        self.reached = False

    def run(self, op: Op[T], on: object = None) -> T:
        self._pass(op, True)
        result = self._run(op, on)
        self._pass(op, False)
        return result

    async def arun(self, op: Op[T], on: object = None) -> T:
        self._pass(op, True)
        result = await self._arun(op, on)
        self._pass(op, False)
        return result

    def _pass(self, op: Op[Any], before: bool) -> None:
        if not self.reached and op.name == self._operation and before is self._before:
            self.reached = True
            op.accept()
            raise Crash(f"crash {'before' if before else 'after'} {op.name}")
