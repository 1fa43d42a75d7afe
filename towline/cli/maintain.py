"""Commands that keep the database in order: migrate, sql, prune, vacuum, import."""

from __future__ import annotations

from datetime import timedelta

import click

from ..app import Towline
from ..app.management import ENDED, Ended
from . import output
from .control import who
from .ending import CommandError
from .filters import as_json, duration_of, shown
from .progress import Bar, following
from .target import Command

MOST_PAGES = 2**31 - 1


@click.command(cls=Command, creates=True)
@as_json
def migrate(app: Towline, as_json: bool) -> None:
    """Create the tables or bring them up to date; say what was applied."""
    with Bar("migrating", counts=False):
        applied = app.migrate()
    lines = [f"applied {name}" for name in applied] or ["up to date"]
    output.answer({"applied": applied}, "\n".join(lines), as_json)


@click.command(cls=Command, creates=True)
@click.option("--after", metavar="NAME", help="The newest migration the database has already.")
@as_json
def sql(app: Towline, after: str | None, as_json: bool) -> None:
    """Print the SQL of the tables, for Alembic, Django or a database administrator."""
    names = app.runner.engine.migrations.names
    if after is not None and after not in names:
        raise click.BadParameter(f"there is no migration {after}; there is {', '.join(names)}")
    text = app.ddl(after)
    if as_json:
        left = [name for name in names if after is None or name > after]
        output.print_json({"migrations": left, "sql": text})
    else:
        output.write(text)


@click.command(cls=Command)
@click.option("--older-than", type=duration_of, metavar="TIME", help="90, 15m, 2h, 3d.")
@click.option("--state", type=click.Choice(ENDED), multiple=True, help="Only these.")
@click.option("--preview", is_flag=True, help="Only say how many it would delete.")
@as_json
def prune(
    app: Towline,
    older_than: timedelta | None,
    state: tuple[Ended, ...],
    preview: bool,
    as_json: bool,
) -> None:
    """Delete ended chains that are older than they are kept, or than --older-than.

    How long they are kept, the app says (keep_completed= and others); with --url, the defaults.
    """
    with following(app, "deleting"):
        number = app.prune(older_than=older_than, state=state or None, preview=preview, by=who())
    done = "would be deleted" if preview else "deleted"
    data = {"chains": number, **({"preview": True} if preview else {})}
    output.answer(data, f"{number} chain{'s' * (number != 1)} {done}", as_json)


@click.command(cls=Command)
@click.option(
    "--pages",
    type=click.IntRange(1, MOST_PAGES, clamp=False),
    default=1000,
    show_default=True,
    help="SQLite: at most so many.",
)
@as_json
def vacuum(app: Towline, pages: int, as_json: bool) -> None:
    """Give free pages back to the system, while workers run."""
    number = app.vacuum(pages)  # what a server gives back is not known here
    text = f"vacuumed; {number} page{'s' * (number != 1)} known to be given back"
    output.answer({"pages": number}, text, as_json)


@click.command("import", cls=Command, words="gigq FILE", least=2, most=2, needs_tasks=True)
@click.option(
    "--map",
    "pairs",
    multiple=True,
    metavar="PATH=TASK",
    help="Which task a function of its rows becomes.",
)
@click.option("--preview", is_flag=True, help="Only say how many it would take over.")
@as_json
def take_over(
    app: Towline, words: tuple[str, ...], pairs: tuple[str, ...], preview: bool, as_json: bool
) -> None:
    """Take over the pending jobs of a GigQ file, which are cancelled there.

    No path of a row is imported: --map tasks.send=send says what becomes of a function, and one
    that is not named stops all of it. A job stays there if it waits for one that has ended there,
    or runs: GigQ's own worker can end those. Done twice, it takes nothing twice.
    """
    from . import gigq

    kind, file = words
    if kind != "gigq":
        raise CommandError(f"only gigq can be imported, not {shown(kind)}")
    taken = gigq.take_over(app, file, pairs, preview)
    done = "would be taken over" if preview else "taken over"
    text = f"{taken.number} job{'s' * (taken.number != 1)} {done}"
    if taken.left:
        text += f"; {len(taken.left)} left there, behind one that has ended or runs"
    data = {"taken": taken.number, "left": taken.left, "jobs": taken.jobs}
    output.answer({**data, **({"preview": True} if preview else {})}, text, as_json)
