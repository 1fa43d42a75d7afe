"""`towline demo`: the product at work."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--seconds", type=float, default=5.0, show_default=True, help="How long many jobs run."
)
@click.option("--url", help="A database instead of a throw-away SQLite file.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures for programs.")
def demo(seconds: float, url: str | None, as_json: bool) -> None:
    """See it work, on a throw-away SQLite file."""
    from ..demo import main

    raise SystemExit(main(seconds, as_json, url))
