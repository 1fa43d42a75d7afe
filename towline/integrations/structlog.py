"""structlog: what a handler logs says which job it belongs to."""

from __future__ import annotations

from collections.abc import Generator

from structlog.contextvars import bound_contextvars

from ..app import Towline
from ..task.context import Context


def bind(app: Towline) -> None:
    """Bind job, chain, task, queue and attempt while a handler runs; twice is once.

    The log must be configured with `structlog.contextvars.merge_contextvars`. Handlers that take
    a chunk have those of its first item.
    """
    if attempt_bound not in app.middleware:
        app.middleware.insert(0, attempt_bound)  # around all others: their lines have them, too


def attempt_bound(context: Context) -> Generator[None, None, None]:
    """The middleware."""
    with bound_contextvars(
        job=context.job_id,
        chain=context.chain_id,
        task=context.task,
        queue=context.queue,
        attempt=context.attempt,
    ):
        yield
