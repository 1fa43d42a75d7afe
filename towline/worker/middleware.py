"""Middleware: generator functions around each attempt, which yield once, where the handler runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from typing import Any

from ..task.context import Context

Middleware = Callable[[Context], Generator[None, Any, None]]

log = logging.getLogger("towline.worker")


class MiddlewareStack:
    """The middleware of one attempt: each begins before the handler and sees how it ended.

    One that fails before or after a success makes an ordinary failure of the attempt. None can
    make a success of a failure.
    """

    __slots__ = ("_all", "_open")

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        self._all = middleware
        self._open: list[Generator[None, Any, None]] = []

    def begin(self, context: Context) -> None:
        for middleware in self._all:
            generator = middleware(context)
            try:
                next(generator)
            except StopIteration:
                continue
            self._open.append(generator)

    def succeed(self, value: Any) -> None:
        while self._open:
            generator = self._open.pop()
            try:
                generator.send(value)
            except StopIteration:
                continue
            generator.close()

    def fail(self, error: BaseException) -> None:
        """Show the error to all that have begun."""
        while self._open:
            generator = self._open.pop()
            try:
                generator.throw(error)
                generator.close()
            except StopIteration:
                pass
            except BaseException as other:
                if other is not error:
                    log.debug("middleware failed too", exc_info=other)
