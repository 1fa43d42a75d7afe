"""A filter for log handlers: which attempt a line of the application was written in."""

from __future__ import annotations

import logging

from ..task.context import current

OF_ATTEMPT = ("job", "chain", "task", "attempt")


class InAttempt(logging.Filter):
    """Gives each line `job`, `chain`, `task` and `attempt` of the attempt it was logged in; None
    outside of one, so that a format may name them. It drops nothing.

    For a handler, not for a logger, whose filters do not see the lines of loggers below it.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not mark(record):
            for name in OF_ATTEMPT:
                if not hasattr(record, name):
                    setattr(record, name, None)
        return True


def mark(record: logging.LogRecord) -> bool:
    """Say in a record which attempt it is of, where it does not itself; False outside of one."""
    attempt = current.get(None)
    if attempt is None:
        return False
    held = attempt.held
    for name, value in zip(
        OF_ATTEMPT, (held.job_id, held.chain_id, held.task, held.attempt), strict=True
    ):
        if getattr(record, name, None) is None:
            setattr(record, name, value)
    return True
