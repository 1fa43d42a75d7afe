"""A task in a process that says what its log lines would have."""

from __future__ import annotations

from typing import Any

from structlog.contextvars import get_contextvars

from towline import Towline
from towline.integrations.structlog import bind

app = Towline()
bind(app)


@app.task(run_in="process")
def bound() -> dict[str, Any]:
    return dict(get_contextvars())
