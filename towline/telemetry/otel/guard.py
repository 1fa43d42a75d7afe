"""What OpenTelemetry raises stays here: no span processor changes what becomes of a job.

It is logged, once a minute at most for each place.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")

COMPLAIN_EVERY = 60.0  # seconds

log = logging.getLogger("towline.telemetry")


class Trouble:
    """What fails in one place."""

    def __init__(self) -> None:
        self._said = 0.0

    def say(self, error: Exception) -> None:
        if not self._said or time.monotonic() >= self._said + COMPLAIN_EVERY:
            self._said = time.monotonic()
            log.warning("OpenTelemetry failed; the work goes on without", exc_info=error)


def guarded(otherwise: D) -> Callable[[Callable[P, T]], Callable[P, T | D]]:
    """A function that answers so when it fails, and says in the log that it did."""

    def decorate(function: Callable[P, T]) -> Callable[P, T | D]:
        trouble = Trouble()

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T | D:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                trouble.say(error)
                return otherwise

        return call

    return decorate
