"""`towline bench`: a short measurement of the user's own database, and what limits it."""

from __future__ import annotations

import click

from ... import exit_codes
from ...app import Towline
from .. import output
from ..demo import seconds_of
from ..filters import as_json
from ..target import Command


@click.command(cls=Command)
@click.option(
    "--seconds",
    type=seconds_of,
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="How long all of it may take, about.",
)
@as_json
def bench(app: Towline, seconds: float, as_json: bool) -> int:
    """Measure this database for a moment, and say what limits it.

    It makes tables of its own, towline_bench_…, and drops them at the end.
    """
    from .report import document, show, take  # most commands do without

    report = take(app, seconds)
    if as_json:
        output.print_json(document(report))
    else:
        show(report)
    return exit_codes.OK if report.proof.holds else exit_codes.FAILED
