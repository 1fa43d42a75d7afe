"""The doctor command: what is wrong with the database, its workers and its jobs, and what to do."""

from __future__ import annotations

from collections import Counter

import click
from msgspec.structs import asdict

from .. import exit_codes
from ..app import Towline
from ..doctor import examine
from ..engine import NOTE, PROBLEM, Finding
from . import output
from .filters import as_json
from .target import Command


@click.command(cls=Command, creates=True)
@as_json
def doctor(app: Towline, as_json: bool) -> int:
    """Look for what is wrong, and say what to do. Exit code 1 when there is a problem."""
    findings = list(examine(app))
    levels = Counter(found.level for found in findings)
    notes, problems = levels[NOTE], levels[PROBLEM]
    if as_json:
        output.print_json({"ok": not problems, "findings": [asdict(found) for found in findings]})
    else:
        for found in findings:
            show_finding(found)
        output.say(f"\n{problems} problem{'s' * (problems != 1)}, {notes} note{'s' * (notes != 1)}")
    return exit_codes.FAILED if problems else exit_codes.OK


def show_finding(found: Finding) -> None:
    """A finding: its level, what it is about, the text, and below it what to do."""
    from rich.table import Table
    from rich.text import Text

    line = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    line.add_column(width=7)
    line.add_column(width=12)
    line.add_column(overflow="fold")
    line.add_row(
        Text(found.level, style=output.STYLES[found.level]),
        Text(found.about, style="bold"),
        Text(output.shown_text(found.text, lines=False)),
    )
    if found.advice:
        advice = output.shown_text(f"→ {found.advice}", lines=False)
        line.add_row("", "", Text(advice, style="italic"))
    output.show(line)
