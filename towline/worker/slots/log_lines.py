"""Log lines of handlers in processes: the worker logs them, with its own levels and handlers.

So they look like all others and lines of several processes are never mixed, whatever the worker's
program has set up.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from msgspec import Struct

ROOT = "root"
MOST_TEXT = 64 * 1024  # characters of it
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

Plain = str | int | float | bool | None


class LogLine(Struct, tag=True):
    """What was logged in a process, with what came by `extra` where that is plain."""

    name: str
    level: int
    text: str
    created: float
    place: tuple[str, int, str]  # file, line, function
    thread: str | None
    process: tuple[int, str | None]
    error: str | None
    extra: dict[str, Plain]

    def log(self) -> None:
        """Hand it to the handlers of this process. Loggers below the root have done theirs."""
        path, number, function = self.place
        record = logging.LogRecord(
            self.name, self.level, path, number, self.text, None, None, func=function
        )
        record.created = self.created
        record.msecs = self.created % 1 * 1000
        record.threadName = self.thread
        record.process, record.processName = self.process
        record.exc_text = self.error
        vars(record).update(self.extra)
        logging.getLogger().handle(record)


def levels() -> dict[str, int]:
    """From which level on each logger of this process logs, where that was said."""
    known = {ROOT: logging.getLogger().level}
    for name, logger in list(logging.Logger.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level:
            known[name] = logger.level
    return known


def send_log_lines(send: Callable[[Struct], None], levels: dict[str, int]) -> None:
    """In a process: log to the worker, from the levels on that it has."""
    for name, level in levels.items():
        logging.getLogger(None if name == ROOT else name).setLevel(level)
    logging.getLogger().handlers[:] = [LogLineHandler(send)]


class LogLineHandler(logging.Handler):
    """Sends lines to the worker."""

    def __init__(self, send: Callable[[Struct], None]) -> None:
        super().__init__()
        self._send = send
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = _line(record)
            if os.getpid() == self._pid:
                self._send(line)
            elif logging.lastResort is not None:
                logging.lastResort.handle(record)  # a fork of a handler's own: it has no worker
        except Exception:
            self.handleError(record)


def _line(record: logging.LogRecord) -> LogLine:
    text, error = record.getMessage(), record.exc_text
    if record.exc_info and not error:
        error = logging.Formatter().formatException(record.exc_info)
    extra: dict[str, Plain] = {}
    for name, value in vars(record).items():
        if name not in _USUAL and isinstance(value, Plain):
            extra[_plain(name)] = _plain_value(value)
    return LogLine(
        name=_plain(record.name), level=record.levelno, text=_plain(text), created=record.created,
        place=(_plain(record.pathname), record.lineno, _plain(record.funcName or "")),
        thread=record.threadName, process=(record.process or 0, record.processName),
        error=None if error is None else _plain(error), extra=extra,
    )  # fmt: skip


def _plain_value(value: Plain) -> Plain:
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else _plain(f"{value:#x}")
    return float(value)


def _plain(text: str) -> str:
    """A text that can be sent: not of a kind of its own, no half of a character, not too long."""
    if len(text) > MOST_TEXT:
        text = f"{text[:MOST_TEXT]}…"
    return text.encode("utf-8", "backslashreplace").decode()
