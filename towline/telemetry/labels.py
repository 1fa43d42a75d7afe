"""Values of labels, bounded: a process keeps the first so many, all others are one.

A metric with a label costs a row for each value, in every process, for ever. Names of queues and
tasks may come from users, and error types from anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("towline.telemetry")

OTHER = "_other"
MOST_QUEUES, MOST_TASKS, MOST_ERROR_TYPES = 100, 500, 100


class Bound:
    """Values of one label. `knows` says which may be one at all."""

    def __init__(self, what: str, most: int, knows: Callable[[str], bool] | None = None) -> None:
        self._what = what
        self._most = most
        self._knows = knows
        self._kept: dict[str, str] = {}
        self._full = False

    def __call__(self, value: str) -> str:
        """The value, or `_other`."""
        kept = self._kept.get(value)
        return self._new(value) if kept is None else kept

    def _new(self, value: str) -> str:
        if self._knows is not None and not self._knows(value):
            return OTHER
        if len(self._kept) >= self._most:
            if not self._full:
                self._full = True
                log.warning(
                    "more than %d %s: in metrics, further ones are %s",
                    self._most, self._what, OTHER,
                )  # fmt: skip
            return OTHER
        return self._kept.setdefault(value, value)


class Labels:
    """The bounds of one process, for one app."""

    def __init__(self, knows_task: Callable[[str], bool] | None = None) -> None:
        self.queue = Bound("queues", MOST_QUEUES)
        self.task = Bound("tasks", MOST_TASKS, knows_task)
        self.error_type = Bound("error types", MOST_ERROR_TYPES)
