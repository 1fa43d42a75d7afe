"""Commands that change waiting jobs and run completed ones once more: change, rerun."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

import click

from ..app import Towline
from . import completion
from .control import each, who
from .filters import as_json, duration_of, job_id
from .target import Command


@click.command(cls=Command, words="ID...", least=1, most=None)
@click.option("--priority", type=int, help="Higher ones run first.")
@click.option("--delay", type=duration_of, metavar="TIME", help="Not before: 90, 15m, 2h, 3d.")
@click.option("--queue", shell_complete=completion.queues, help="Another queue.")
@click.option("--label", help="A note, shown in lists.")
@as_json
def change(
    app: Towline,
    words: tuple[str, ...],
    priority: int | None,
    delay: timedelta | None,
    queue: str | None,
    label: str | None,
    as_json: bool,
) -> int:
    """Give open jobs that do not run another priority, time, queue or label."""
    ids = [job_id(word) for word in words]
    if all(said is None for said in (priority, delay, queue, label)):
        raise click.UsageError("say what to change: --priority, --delay, --queue or --label")
    at: datetime | None = None if delay is None else app.now() + delay
    said = partial(app.change, priority=priority, at=at, queue=queue, label=label, by=who())
    return each(app, ids, said, as_json)


@click.command(cls=Command, words="ID...", least=1, most=None)
@as_json
def rerun(app: Towline, words: tuple[str, ...], as_json: bool) -> int:
    """Run completed chains again, as new ones with the same arguments."""
    return each(app, [job_id(word) for word in words], partial(app.rerun, by=who()), as_json)
