"""Log lines of a worker on stderr: for people, or one JSON object per line.

No arguments and no results: what the library logs holds none.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from datetime import UTC, datetime

from ..text import plain
from .output import exact

COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}

# What every record has; anything else came by `extra`.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Lines(logging.Formatter):
    """Time, level and text; further lines of the text are set in, so that none looks like one of
    ours."""

    def __init__(self, colours: bool) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        time = f"{datetime.fromtimestamp(record.created):%Y-%m-%d %H:%M:%S}"  # noqa: DTZ006
        level = f"{record.levelname:<7}"
        if self._colours:
            time = f"\x1b[2m{time}\x1b[0m"
            level = f"\x1b[{COLOURS.get(record.levelname, '0')}m{level}\x1b[0m"
        text = record.getMessage()
        if error := _error_of(self, record):
            text = f"{text}\n{error}"
        return f"{time} {level} {plain(text)}".replace("\n", "\n    ")


class JsonLines(logging.Formatter):
    """One object per line: time, level, logger, pid, text, and what came by `extra`, such as the
    job, attempt and task of `ctx.log`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        data: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "text": record.getMessage(),
        }
        for name, value in vars(record).items():
            plain = value is None or isinstance(value, str | int | float)
            if plain and name not in _USUAL and name not in data:
                data[name] = exact(value)
        if error := _error_of(self, record):
            data["error"] = error
        return json.dumps(data)


def _error_of(formatter: logging.Formatter, record: logging.LogRecord) -> str | None:
    """The traceback; of a line that comes from another process it is there as a text."""
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return record.exc_text


def open_streams() -> None:
    """Put nothing where stdin, stdout or stderr is closed: else a database were opened in its
    place, and what is printed written into it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(nothing, number)
                os.close(nothing)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def begin(level: str | None, as_json: bool) -> None:
    """Log to stderr, unless the application has set up logging itself and nothing was asked for."""
    root = logging.getLogger()
    if root.handlers and level is None and not as_json:
        return
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="backslashreplace")
    colours = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else Lines(colours))
    root.handlers[:] = [handler]
    root.setLevel((level or "info").upper())
