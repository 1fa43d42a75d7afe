"""How a command ends: its exit code, and one line on stderr when it did not work."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import traceback
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
from ..exit_codes import DATABASE, FAILED, INTERRUPTED, MEANING, OK, USAGE
from ..text import fit, plain, shortened
from .output import NotWritten, flush

LONGEST, LONGEST_WORD = 1000, 200  # characters of a complaint
OUTPUT = (errno.EPIPE, errno.ENOSPC, errno.EBADF, errno.EIO)

WRONG_INPUT = (InvalidArguments, InvalidSetting, InvalidTask, OutputError, PayloadTooLarge)


class CommandError(click.ClickException):
    """A command that makes no sense as it was given; says what to do, in one line."""

    exit_code = USAGE


def asked_for_traceback(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.ensure_object(dict)["traceback"] = True


def run(command: click.Command, arguments: Sequence[str] | None) -> int:
    """Run a command to its exit code."""
    wishes: dict[str, bool] = {}
    try:
        code = command.main(arguments, prog_name="towline", standalone_mode=False, obj=wishes)
        flush()
    except Exception as error:
        if wishes:
            _write(plain("".join(traceback.format_exception(error.__cause__ or error))))
        return _ended_by(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code if isinstance(code, int) else OK


def _ended_by(error: Exception) -> int:
    """What an exception means; one that means nothing here is raised on."""
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "towline"
        return complain(f"{error.format_message()} ({path} --help)", USAGE)
    if isinstance(error, click.ClickException):
        return complain(error.format_message(), error.exit_code)
    if isinstance(error, click.Abort):
        return INTERRUPTED
    if isinstance(error, TowlineError):
        return complain(str(error), code_of(error))
    if isinstance(error, NotWritten):
        return _not_written(error)
    if isinstance(error, OSError) and error.errno in OUTPUT and error.filename is None:
        return _not_written(NotWritten(error))  # while help was printed
    raise error


def _not_written(error: NotWritten) -> int:
    """The interpreter would try to write the rest at its end, and say so: it goes nowhere."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, AttributeError):
        pass
    return FAILED if error.quiet else complain(f"the output could not be written: {error}", FAILED)


def code_of(error: TowlineError) -> int:
    if isinstance(error, StoreError):
        return DATABASE
    return USAGE if isinstance(error, WRONG_INPUT) else FAILED


def complain(text: str, code: int) -> int:
    """Say on stderr what went wrong, in one line."""
    words = " ".join(shortened(word, LONGEST_WORD) for word in text.split())
    line = plain(shortened(words, LONGEST), lines=False)
    _write(f"towline: {line}\n")
    return code


def agreed(question: str, yes: bool) -> bool:
    """Whether it is to be done: --yes was given, or somebody at the terminal says so."""
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask here: --yes says that it is meant")
    return click.confirm(plain(question, lines=False), err=True)


def _write(text: str) -> None:
    """Write to stderr, unless that is closed."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(fit(text, sys.stderr.encoding))
        sys.stderr.flush()
    except OSError:
        pass


def explained() -> str:
    """The exit codes, for --help."""
    return "\b\nExit codes:\n" + "\n".join(f"  {code}  {text}" for code, text in MEANING.items())


def end_with(descriptor: int) -> None:
    """End as by SIGTERM when whoever holds the other end of this pipe is gone, however it died."""
    os.set_inheritable(descriptor, False)

    def wait() -> None:
        os.read(descriptor, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="towline-until", daemon=True).start()
