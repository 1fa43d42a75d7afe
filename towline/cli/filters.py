"""The options that choose jobs, the same for every command that takes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from ..model import State
from ..where import JobsWhere

F = TypeVar("F", bound=Callable[..., Any])

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def time_of(text: str) -> datetime:
    """A time, or how long ago: 2026-05-01T12:00, 15m, 2h, 3d."""
    if found := _SPAN.fullmatch(text.strip()):
        return datetime.now(UTC) - timedelta(seconds=float(found[1]) * _SECONDS[found[2]])
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither a time (2026-05-01T12:00) nor a span (15m, 2h, 3d)"
        ) from None


def filters(function: F) -> F:
    """Add the filter options; the command takes them as **where."""
    options = (
        click.option("--state", type=click.Choice([str(state) for state in State])),
        click.option("--task", help="By the task's name."),
        click.option("--queue"),
        click.option("--key"),
        click.option("--label"),
        click.option(
            "--since", type=time_of, metavar="TIME", help="Created since: a time, or 15m, 2h, 3d."
        ),
        click.option("--until", type=time_of, metavar="TIME", help="Created before."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def is_empty(where: JobsWhere) -> bool:
    return all(value is None for value in where.values())


def job_id(word: str) -> int:
    """The id of a job, from a word of the command line."""
    if not (word.isascii() and word.isdigit()):
        raise click.BadParameter(f"{word!r} is not the id of a job, which is a number")
    return int(word)
