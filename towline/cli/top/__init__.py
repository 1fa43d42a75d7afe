"""The top command: a live screen of queues, workers, running jobs and what fails."""

from __future__ import annotations

import sys
from datetime import timedelta

import click

from ...app import Towline
from ..ending import CommandError
from ..filters import duration_of
from ..target import Command

LEAST = timedelta(milliseconds=200)


@click.command(cls=Command)
@click.option(
    "--every",
    type=duration_of,
    metavar="TIME",
    default="2",
    show_default=True,
    help="Seconds from one look to the next.",
)
def top(app: Towline, every: timedelta) -> None:
    """Watch queues, workers, running jobs and failures, and act on them.

    Tab goes from table to table, the arrows from row to row. p pauses or resumes the queue on which
    the cursor of its table stands, c cancels that running job, r retries the failed jobs of that
    task; the last two ask first. q ends.
    """
    try:
        from .screen import Top
    except ImportError:
        raise CommandError("top needs textual: pip install -e '.[top]'") from None
    if every < LEAST:
        raise click.BadParameter(f"--every is at least {LEAST.total_seconds():g} s")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("top needs a terminal; `towline stats` and `towline jobs` do not")
    Top(app, every.total_seconds()).run()
