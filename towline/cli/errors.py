"""The errors command: what failed, by task and kind of error."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from .. import views
from ..app import Towline
from ..app.answers import AtLeast
from ..model import Outcome
from . import completion, output
from .filters import as_json, once, time_of
from .target import Command

DAY = timedelta(days=1)


@click.command(cls=Command)
@click.option(
    "--since",
    type=time_of,
    metavar="TIME",
    help="Failed since: a time, or 15m, 2h, 3d.  [default: 1d]",
)
@click.option("--until", type=time_of, metavar="TIME", help="Failed before.")
@click.option(
    "--task",
    multiple=True,
    callback=once,
    shell_complete=completion.tasks,
    help="By the task's name.",
)
@click.option("--queue", multiple=True, callback=once, shell_complete=completion.queues)
@as_json
def errors(
    app: Towline,
    since: datetime | None,
    until: datetime | None,
    task: str | None,
    queue: str | None,
    as_json: bool,
) -> None:
    """Group the jobs that failed by task and kind of error, the most frequent first.

    The newest 10,000 that ended badly are looked at.
    """
    now = app.now()
    found = views.failures_data(app, since=since or now - DAY, until=until, task=task, queue=queue)
    if as_json:
        output.print_json(found)
        return
    if not found["failures"]:
        output.say("no failures", "dim")
    else:
        output.table(
            [
                (
                    group["number"] if found["complete"] else AtLeast(group["number"]),
                    group["task"],
                    kind_of(group),
                    output.distance(datetime.fromisoformat(group["first_at"]), now),
                    output.distance(datetime.fromisoformat(group["last_at"]), now),
                    group["job_id"],
                )
                for group in found["failures"]
            ],
            *("number", "task", "error", "first", "last", "newest job"),
            right=("number", "newest job"),
            elastic=("task", "error"),
        )
    if not found["complete"]:
        output.say("\nthere are more: only the newest 10,000 were looked at", "dim")


def kind_of(group: views.Data) -> str:
    """The class of what was raised; what else ends a job badly, in words."""
    words = {Outcome.TIMEOUT: "timeout", Outcome.LOST: "lost its worker"}
    if group["error_type"] and group["outcome"] not in words:
        return str(group["error_type"]).removeprefix("builtins.")
    return words.get(group["outcome"], "failed without an exception")
