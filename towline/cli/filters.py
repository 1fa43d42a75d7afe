"""The options that choose jobs, the same for every command that takes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from ..app.filters import LARGEST_ID, parse_id
from ..model import ChainState, Outcome, State
from ..text import shortened
from ..times import moment_of, span_of
from . import completion

F = TypeVar("F", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def duration_of(text: str) -> timedelta:
    """A time to wait, in seconds or as a span."""
    try:
        span = span_of(text)
        return timedelta(seconds=float(text)) if span is None else span
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{shown(text)} is neither a number of seconds (90) nor a span (15m, 2h, 3d)"
        ) from None


def time_of(text: str) -> datetime:
    """A time, or how long ago: 2026-05-01T12:00, 15m, 2h, 3d."""
    try:
        return moment_of(text)
    except OverflowError:
        raise click.BadParameter(f"{shown(text)} is beyond the calendar") from None
    except ValueError:
        raise click.BadParameter(
            f"{shown(text)} is neither a time (2026-05-01T12:00) nor a span (15m, 2h, 3d)"
        ) from None


Options = dict[str, dict[str, Any]]
OF_JOBS: Options = {
    "--queue": {"shell_complete": completion.queues},
    "--schedule": {"help": "Stored by ticks of a schedule."},
    "--lane": {"help": "By its lane of a queue."},
    "--roots": {"is_flag": True, "default": None, "help": "First jobs of their chains only."},
    "--chain-task": {
        "help": "By the task of the first job of its chain.",
        "shell_complete": completion.tasks,
    },
    "--worker": {"help": "By the worker that runs it, or ran its last attempt."},
    "--outcome": {
        "type": click.Choice([str(outcome) for outcome in Outcome]),
        "help": "By how its last attempt ended.",
    },
    "--error-type": {
        "metavar": "CLASS",
        "help": 'By what its last attempt raised, as "errors" names it; "none" if nothing.',
    },
    "--ended-since": {
        "type": time_of,
        "metavar": "TIME",
        "help": "Ended since: a time, or 15m, 2h, 3d.",
    },
    "--ended-until": {"type": time_of, "metavar": "TIME", "help": "Ended before."},
}


def once(ctx: click.Context, parameter: click.Parameter, values: Sequence[Any]) -> Any:
    """What an option was given, which the last of several would otherwise decide silently."""
    if len(values) > 1:
        raise click.UsageError(f"{parameter.opts[0]} was given twice; it takes one value", ctx)
    return values[0] if values else None


def several(_: click.Context, __: click.Parameter, values: Sequence[Any]) -> Sequence[Any] | None:
    """What an option was given, however often; each value counts."""
    return values or None


def filters(function: F) -> F:
    """Add the options that choose jobs; the command takes them as **where."""
    return _choosing(function, State, OF_JOBS)


def chain_filters(function: F) -> F:
    """Add the options that choose chains."""
    return _choosing(function, ChainState, {})


def _choosing(function: F, states: type[State | ChainState], more: Options) -> F:
    options: Options = {
        "--state": {
            "type": click.Choice([str(state) for state in states]),
            "callback": several,
            "help": "Given several times, each one counts.",
        },
        "--task": {"help": "By the task's name.", "shell_complete": completion.tasks},
        **more,
        "--key": {},
        "--label": {},
        "--since": {
            "type": time_of,
            "metavar": "TIME",
            "help": "Created since: a time, or 15m, 2h, 3d.",
        },
        "--until": {"type": time_of, "metavar": "TIME", "help": "Created before."},
    }
    for name, settings in reversed(options.items()):
        if "is_flag" not in settings:
            settings = {"callback": once, "multiple": True, **settings}
        function = click.option(name, **settings)(function)
    return function


def is_empty(where: Mapping[str, object]) -> bool:
    return all(value is None for value in where.values())


def shown(word: str) -> str:
    """What was typed, in a complaint about it."""
    return repr(shortened(word, 40))


def job_id(word: str) -> int:
    """The id of a job, from a word of the command line."""
    id = parse_id(word)
    if id is None:
        raise click.BadParameter(
            f"{shown(word)} is not the id of a job, which is a number up to {LARGEST_ID}"
        )
    return id


def json_of(text: str) -> Any:
    """A value that is given as JSON; ValueError says why it is none."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(f"{shown(text)} is nested too deeply") from None
    except ValueError:
        short = text.isprintable() and len(text) < 40
        quoted = f"; text is written '{json.dumps(text)}'" if short else ""
        raise ValueError(f"{shown(text)} is not JSON{quoted}") from None


def _refuse(constant: str) -> None:
    """NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(constant)


def cursor_of(word: str) -> str:
    """Where a page ended, as the page said it."""
    if parse_id(word) is None:
        raise click.BadParameter(f"cursor {shown(word)} did not come from a page")
    return word
