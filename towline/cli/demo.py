"""`towline demo`: the product at work, from a clone; the installed package does without it."""

from __future__ import annotations

import importlib
import os

import click

from .ending import CommandError
from .filters import shown
from .target import HERE

MOST_SECONDS = 3600
DEMO = os.path.join(os.path.dirname(HERE), "examples", "demo")


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
    if not os.path.isdir(DEMO):
        raise CommandError(
            "the demo is not installed with the package: it is examples/demo of the sources; "
            "run `make demo` in a clone"
        )
    code: int = importlib.import_module("examples.demo").main(seconds, as_json, url, keep)
    return code
