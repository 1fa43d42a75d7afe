"""Log lines of handlers in processes: the worker logs them, with its own levels and handlers.

So they look like all others and lines of several processes are never mixed, whatever the worker's
program has set up.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from msgspec import Struct

from ...telemetry.in_attempt import mark

MOST_TEXT = 64 * 1024  # characters of it

Plain = str | int | float | bool | None


class LogLine(Struct, tag=True):
    """What was logged in a process: the fields of its record, and what came by `extra`, where that
    is plain."""

    fields: dict[str, Plain]

    def log(self) -> None:
        """Hand it to the handlers of this process. Loggers below the root have done theirs."""
        logging.getLogger().handle(logging.makeLogRecord(self.fields))


def levels() -> dict[str, int]:
    """From which level on each logger of this process logs, where that was said."""
    known = {"root": logging.getLogger().level}
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level:
            known[name] = logger.level
    return known


def send_log_lines(send: Callable[[Struct], None], levels: dict[str, int]) -> None:
    """In a process: log to the worker, from the levels on that it has."""
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().handlers[:] = [LogLineHandler(send)]


class LogLineHandler(logging.Handler):
    """Sends lines to the worker."""

    def __init__(self, send: Callable[[Struct], None]) -> None:
        super().__init__()
        self._send = send
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            mark(record)  # the worker cannot tell whose line it was
            line = _line(record)
            if os.getpid() == self._pid:
                self._send(line)
            elif logging.lastResort is not None:
                logging.lastResort.handle(record)  # a fork of a handler's own: it has no worker
        except Exception:
            self.handleError(record)


def _line(record: logging.LogRecord) -> LogLine:
    fields = {**vars(record), "msg": record.getMessage(), "args": None}
    if record.exc_info and not record.exc_text:
        fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
    return LogLine(
        {_text(name): _plain(value) for name, value in fields.items() if isinstance(value, Plain)}
    )


def _plain(value: Plain) -> Plain:
    """The same as one of the built-in types, in a form that can be sent."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else f"{value:#x}"
    return float(value)


def _text(text: str) -> str:
    """A text that can be sent: not of a kind of its own, no half of a character, not too long."""
    if len(text) > MOST_TEXT:
        text = f"{text[:MOST_TEXT]}…"
    return text.encode("utf-8", "backslashreplace").decode()
