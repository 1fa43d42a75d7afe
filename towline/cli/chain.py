"""The chain command: a chain's jobs, and as a tree all that hangs together with it."""

from __future__ import annotations

import click

from .. import views
from ..app import Towline
from ..app.shown import output_text
from . import output
from .filters import as_json, job_id
from .lists import show_jobs
from .target import Command
from .tree import Growing, show_tree


@click.command(cls=Command, words="ID", least=1, most=1)
@click.option("--limit", default=1000, show_default=True, help="How many jobs at most.")
@click.option("--tree", "as_tree", is_flag=True, help="Also what it waits for, and what needs it.")
@as_json
def chain(app: Towline, words: tuple[str, ...], limit: int, as_tree: bool, as_json: bool) -> None:
    """Show a chain by its first job's id: its jobs in order, who waits for it."""
    id = job_id(words[0])
    found = app.chain(id)
    if as_tree:
        tree = Growing(app).around(found)
        if as_json:
            output.print_json(tree)
        else:
            show_tree(tree)
        return
    members = app.jobs(chain=id, newest=False, limit=limit)
    dependents = app.dependents(id)
    if as_json:
        output.print_json(
            {
                **views.chain_data(app, found),
                "jobs": views.jobs_data(app, members),
                "cursor": members.cursor,
                "dependents": [views.dependent_data(dependent) for dependent in dependents],
                "blockers": views.blockers_data(app, id),
            }
        )
        return
    now = app.now()
    result = None if found.last is None else output_text(app, found.last)
    output.facts(
        [
            ("chain", found.id),
            ("task", found.task),
            ("state", found.state),
            ("label", found.label),
            ("key", found.key),
            ("created", output.both(found.created_at, now)),
            ("ended", output.both(found.ended_at, now)),
            ("output", result),
        ]
    )
    output.title("jobs")
    show_jobs(app, list(members), now)
    if dependents:
        output.title("who waits for it")
        output.table(
            [(d.job_id, d.task, d.name) for d in dependents],
            *("job", "task", "name"),
            right=("job",),
            elastic=("task", "name"),
        )
