"""Log lines of a worker on stderr: for people, or one JSON object per line.

No arguments and no results: what the library logs holds none.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime

COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "31;1"}

# What every record has; anything else came by `extra`.
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Lines(logging.Formatter):
    """Time, level and text."""

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
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return f"{time} {level} {text}"


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
                data[name] = value
        if record.exc_info:
            data["error"] = self.formatException(record.exc_info)
        return json.dumps(data, ensure_ascii=False)


def begin(level: str | None, as_json: bool) -> None:
    """Log to stderr, unless the application has set up logging itself and nothing was asked for."""
    root = logging.getLogger()
    if root.handlers and level is None and not as_json:
        return
    colours = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else Lines(colours))
    root.handlers[:] = [handler]
    root.setLevel((level or "info").upper())
