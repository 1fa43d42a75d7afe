"""`towline demo`: the product at work."""

from __future__ import annotations

import click

from .filters import shown

MOST_SECONDS = 3600


def seconds_of(text: str) -> float:
    """How long; an hour is as good as for ever."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= MOST_SECONDS:  # which NaN is not either
        raise click.BadParameter(f"{shown(text)} is not a number from 0 to {MOST_SECONDS}")
    return seconds


@click.command()
@click.option(
    "--seconds",
    type=seconds_of,
    metavar="SECONDS",
    default=5.0,
    show_default=True,
    help="How long many jobs run.",
)
@click.option("--url", help="A database instead of a throw-away SQLite file.")
@click.option("--keep", is_flag=True, help="With --url: leave the demo's tables there.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures for programs.")
def demo(seconds: float, url: str | None, keep: bool, as_json: bool) -> int:
    """See it work, on a throw-away SQLite file."""
    from ..demo import main

    return main(seconds, as_json, url, keep)
