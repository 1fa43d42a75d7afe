"""Crash points: a process that dies right before or right after an operation of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ..app import Towline
from ..errors import InvalidSetting
from ..operation import Op
from ..store import Store
from .stand_in import StandIn

T = TypeVar("T")
NAME = "drain"  # how the registrations of `drain` begin


class Crash(BaseException):
    """Raised where the process is supposed to die; no handler's `except Exception` survives it."""


@contextmanager
def crash_at(app: Towline, operation: str, *, before: bool = True) -> Iterator[None]:
    """Let whatever the block does die at an operation: "finish", "claim", "enqueue", …

    `before`: it is not begun. Otherwise it is committed and its answer is lost; with `on=` it has
    run and the caller's transaction is still open. The block ends there. What ran then is recorded
    as lost, as after the death of a worker: it comes back after its back-off, until the crash
    limit. Fails if nothing came to the operation.
    """
    if operation.startswith("_") or operation not in vars(Store):
        raise InvalidSetting(
            f'{operation!r} is no operation of the store, such as "enqueue", "claim" or "finish"'
        )
    with CrashPoint(app, operation, before) as point:
        try:
            yield
        except Crash:
            pass
    if not point.reached:
        raise AssertionError(f"nothing came to {operation}, so nothing crashed")
    lose_workers(app)


def lose_workers(app: Towline) -> None:
    """What a sweep finds when a drain has died: its jobs are taken back, its row goes."""
    gone = [worker.id for worker in app.workers() if worker.name.startswith(NAME)]
    while app.runner.run(app.runner.store.sweep((), gone)) > 0:
        pass


class CrashPoint(StandIn):
    """Crashes once, then lets everything pass."""

    __slots__ = ("_before", "_operation", "reached")

    def __init__(self, app: Towline, operation: str, before: bool) -> None:
        super().__init__(app)
        self._operation = operation
        self._before = before
        self.reached = False

    def run(self, op: Op[T], on: object = None, *, patience: float | None = None) -> T:
        self._pass(op, True)
        result = self._real.run(op, on, patience=patience)
        self._pass(op, False)
        return result

    async def arun(self, op: Op[T], on: object = None) -> T:
        self._pass(op, True)
        result = await self._real.arun(op, on)
        self._pass(op, False)
        return result

    def _pass(self, op: Op[Any], before: bool) -> None:
        if not self.reached and op.name == self._operation and before is self._before:
            self.reached = True
            raise Crash(f"crash {'before' if before else 'after'} {op.name}")
