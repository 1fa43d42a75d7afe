"""The command `towline` and all that stand below it."""

from __future__ import annotations

import click

from ..version import VERSION
from . import change, control, limits, maintain, read, stats, tasks
from .bench import bench
from .chain import chain
from .completion import completion
from .dashboard import dashboard
from .delete import delete
from .demo import demo
from .dev import dev
from .doctor import doctor
from .ending import asked_for_traceback, explained
from .errors import errors
from .group import show_group
from .health import health, metrics
from .mcp import mcp
from .schedules import schedule, schedules
from .shell import shell
from .top import top
from .worker import worker

SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Work": (worker, dev, tasks.enqueue, shell, demo),
    "Look": (
        read.jobs,
        read.job,
        chain,
        show_group,
        errors,
        stats.stats,
        stats.workers,
        limits.limits,
        limits.lanes,
        tasks.tasks,
        schedules,
        schedule,
        top,
        doctor,
        dashboard,
        mcp,
        health,
        metrics,
    ),
    "Act": (
        control.retry,
        control.cancel,
        control.run,
        change.change,
        change.rerun,
        control.complete,
        control.fail,
        delete,
        control.pause,
        control.resume,
        limits.limit,
    ),
    "Keep": (
        maintain.prune,
        maintain.vacuum,
        maintain.migrate,
        maintain.sql,
        maintain.take_over,
        bench,
        completion,
    ),
}
WHOLE = 1000  # characters: what does not fit on a line goes on below it
# Said to every command: each keeps the option of whoever asked it first, with or without a group.
HELP = {"help_option_names": ["-h", "--help"]}


class Group(click.Group):
    """Shows its commands by what they are for, not by the alphabet."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(c.name or "", c.get_short_help_str(WHOLE)) for c in commands])


@click.group(cls=Group, epilog=explained(), context_settings=HELP)
@click.version_option(VERSION, message="towline %(version)s")
def group() -> None:
    """Durable background work in your application's own database.

    Name the app as MODULE:APP behind the command or in $TOWLINE_APP, or only its database with
    --url or in $TOWLINE_URL. --json prints data for programs.
    """


for section in SECTIONS.values():
    for command in section:
        command.params.append(
            click.Option(
                ["--traceback"],
                is_flag=True,
                expose_value=False,
                is_eager=True,
                callback=asked_for_traceback,
                help="After an error: where it came from.",
            )
        )
        command.context_settings.update(HELP)
        group.add_command(command)
