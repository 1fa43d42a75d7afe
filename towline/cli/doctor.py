"""The doctor command: looks the database, its workers and its jobs over."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..app import Towline
from ..engine import NOTE, PROBLEM
from ..exit_codes import FAILED, OK
from . import output
from .checks import examine
from .filters import as_json
from .target import Command


@click.command(cls=Command, creates=True)
@as_json
def doctor(app: Towline, as_json: bool) -> int:
    """Look for what is wrong, and say what to do. Exit code 1 when there is a problem."""
    findings = list(examine(app))
    sick = any(finding.level == PROBLEM for finding in findings)
    if as_json:
        output.print_json({"ok": not sick, "findings": [asdict(found) for found in findings]})
    else:
        for found in findings:
            show_finding(found.level, found.about, found.text, found.advice)
        notes = sum(found.level == NOTE for found in findings)
        problems = sum(found.level == PROBLEM for found in findings)
        output.say(f"\n{problems} problem{'s' * (problems != 1)}, {notes} note{'s' * (notes != 1)}")
    return FAILED if sick else OK


def show_finding(level: str, about: str, text: str, advice: str | None) -> None:
    """A finding: its level, what it is about, the text, and below it what to do."""
    from rich.table import Table
    from rich.text import Text

    line = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    line.add_column(width=7)
    line.add_column(width=12)
    line.add_column(overflow="fold")
    line.add_row(
        Text(level, style=output.STYLES[level]),
        Text(about, style="bold"),
        Text(output.cell_text(text)),
    )
    if advice:
        line.add_row("", "", Text(output.cell_text(f"→ {advice}"), style="italic"))
    output.show(line)
