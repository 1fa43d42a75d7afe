"""How a command ends: its exit code, and one line on stderr when it did not work."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

import click

from ..errors import (
    InvalidArguments,
    InvalidSetting,
    InvalidTask,
    OutputError,
    PayloadTooLarge,
    StoreError,
    TowlineError,
)

OK, FAILED, USAGE, AT_ONCE, DATABASE = 0, 1, 2, 3, 4
INTERRUPTED = 128 + signal.SIGINT

MEANING = {
    OK: "it worked; a worker: stopped in order, or drained",
    FAILED: "it did not work: no such job, not in that state; doctor: found a problem",
    USAGE: "wrong usage, or the application cannot be imported",
    AT_ONCE: "a worker was stopped at once, by a second signal",
    DATABASE: "the database cannot be used: away, read-only, no or other tables",
}

WRONG_INPUT = (InvalidArguments, InvalidSetting, InvalidTask, OutputError, PayloadTooLarge)


class CommandError(Exception):
    """A command that makes no sense as it was given; says what to do, in one line."""


def run(command: click.Command, arguments: Sequence[str] | None) -> int:
    """Run a command to its exit code."""
    try:
        code = command.main(arguments, prog_name="towline", standalone_mode=False)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "towline"
        return complain(f"{error.format_message()} ({path} --help)", USAGE)
    except click.ClickException as error:
        return complain(error.format_message(), error.exit_code)
    except CommandError as error:
        return complain(str(error), USAGE)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except TowlineError as error:
        return complain(str(error), code_of(error))
    return code if isinstance(code, int) else OK


def code_of(error: TowlineError) -> int:
    if isinstance(error, StoreError):
        return DATABASE
    return USAGE if isinstance(error, WRONG_INPUT) else FAILED


def complain(text: str, code: int) -> int:
    """Say on stderr what went wrong, in one line."""
    print("towline: " + " ".join(text.split()), file=sys.stderr)
    return code


def explained() -> str:
    """The exit codes, for --help."""
    return "\b\nExit codes:\n" + "\n".join(f"  {code}  {text}" for code, text in MEANING.items())
