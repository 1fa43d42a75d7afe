"""The group command: how far a group is, and which of its members failed."""

from __future__ import annotations

import click

from .. import views
from ..app import Towline
from ..text import gist
from . import output
from .filters import as_json, job_id
from .target import Command

BAR = 40  # characters


@click.command("group", cls=Command, words="ID", least=1, most=1)
@click.option("--limit", default=50, show_default=True, help="How many members at most.")
@as_json
def show_group(app: Towline, words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Show a group by the id of the job behind it: how far it is, failed members first."""
    found = app.group(job_id(words[0]))
    data = views.group_data(app, found, limit)
    if as_json:
        output.print_json(data)
        return
    done = BAR * found.ended // found.total if found.total else BAR
    output.facts(
        [
            ("group", found.id),
            ("task", found.task),
            ("state", found.state),
            ("why", data["why"]),
            ("ended", f"{'█' * done}{'░' * (BAR - done)} {found.ended:,} of {found.total:,}"),
            ("failed", f"{data['failed']:,}" if data["failed"] else None),
        ]
    )
    if data["members"]:
        output.title("members")
        output.table(
            [
                (m["position"], m["chain_id"], m["state"], m["task"], gist(m["error"]))
                for m in data["members"]
            ],
            *("position", "chain", "state", "task", ""),
            right=("position", "chain"),
            elastic=("task", ""),
        )
    if len(data["members"]) < found.total:
        output.say(f"\n{len(data['members'])} of {found.total:,} members are shown", "dim")
