"""The delete command: chains, by id or by filter, after a question."""

from __future__ import annotations

from functools import partial
from typing import Unpack

import click

from ..app import Towline
from ..app.filters import ChainsWhere
from ..exit_codes import FAILED, OK
from ..text import counted
from . import output
from .control import chosen, refused, tell_number, tried, who
from .ending import agreed, complain
from .filters import as_json, chain_filters
from .progress import following
from .target import Command


@click.command(cls=Command, words="[ID]...", most=None)
@chain_filters
@click.option("--all", "everything", is_flag=True, help="Every ended one, of any task.")
@click.option("--cascade", is_flag=True, help="Also the chains they waited for.")
@click.option("--force", is_flag=True, help="Also while a job of it runs: its worker loses it.")
@click.option("--preview", is_flag=True, help="Only count what fits.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
def delete(
    app: Towline,
    words: tuple[str, ...],
    everything: bool,
    cascade: bool,
    force: bool,
    preview: bool,
    yes: bool,
    as_json: bool,
    **where: Unpack[ChainsWhere],
) -> int:
    """Delete chains with their jobs and their history.

    By id, or all that fit the filters: of those the ended ones, unless --state says otherwise. A
    chain stays while an open job waits for it. Asks first; where nobody can be asked, --yes is
    needed.
    """
    ids = chosen(words, where, everything, preview)
    if ids:
        if not agreed(f"Delete {chains(len(ids))}?", yes):
            return complain("nothing was deleted", FAILED)
        done, errors = tried(ids, lambda id: app.delete(id, cascade, force=force, by=who()))
        gone = sorted(id for chains in done for id in chains)
        if as_json:
            output.print_json({"chains": gone, "errors": errors})
        elif gone:
            output.say(f"{chains(len(gone))} deleted: {', '.join(map(str, gone))}")
        return refused(errors)
    fitting = partial(app.delete_many, everything=everything, preview=True, **where)
    number = fitting() if preview or not yes else None
    if number and not preview and not agreed(f"Delete {chains(number)}?", yes):
        return complain("nothing was deleted", FAILED)
    if not preview and number != 0:
        with following(app, "deleting", fitting):
            number = app.delete_many(
                everything=everything, cascade=cascade, force=force, by=who(), **where
            )
    tell_number(number or 0, preview, "deleted", as_json, what="chain")
    return OK


def chains(number: int) -> str:
    return counted(number, "chain", "chains")
