"""Commands that keep the database in order: migrate, sql, prune, vacuum."""

from __future__ import annotations

import click

from ..app import Towline
from . import output
from .filters import as_json
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
@as_json
def prune(app: Towline, as_json: bool) -> None:
    """Delete ended chains that are older than they are kept.

    How long that is, the app says (keep_completed= and others); with --url, the defaults.
    """
    with following(app, "deleting"):
        number = app.prune()
    output.answer({"chains": number}, f"{number} chain{'s' * (number != 1)} deleted", as_json)


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
