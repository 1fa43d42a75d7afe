"""reference/log-fields.md: what a log line has for programs. Which there are is the code's; the
sentences stand here, and one that is missing, or says something of nothing, is refused."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

from tests.docs.reference import shown
from tests.shape.source import modules
from towline.cli.logs import JsonLines
from towline.events import kinds
from towline.logs import FIELDS
from towline.telemetry import log
from towline.telemetry.in_attempt import OF_ATTEMPT

HEAD = """# Log fields

Towline logs by the standard library's `logging` ([logs](../guides/see/logs.md)). What it knows of
a line is there for programs, by `extra`, as far as it makes sense; the names are
`towline.logs.FIELDS`. Arguments, outputs, keys and passwords are in none, what an error says only
in the text, and only where that was asked for.
"""
SENTENCES = {
    "event": "the [event](events.md) that the line tells of",
    "job": "its id",
    "chain": "the id of its chain",
    "task": "its name",
    "queue": "where the job was",
    "attempt": "its number",
    "worker": "its name",
    "outcome": "how the attempt ended",
    "duration": "seconds",
    "error_type": "the class of what was raised, with its module",
    "trace": "kept free for the id of a trace; no line of ours has it yet",
    "span": "the same for a span",
    "by": "the same for who asked for something",
}
NO_LINE_YET = {"trace", "span", "by"}
JSON = {
    "time": "ISO 8601 in UTC",
    "level": "`debug`, `info`, `warning`, `error`",
    "logger": "its name",
    "pid": "of the process in which it was written",
    "text": "what the line says",
    "error": "a traceback, where there is one",
}
LOGGERS = {
    "towline": "what a call in your program is warned of",
    "towline.worker": "what workers do: the lines of the fields above",
    "towline.job": "`ctx.log`: your handlers",
    "towline.supervisor": "`--processes`: what begins, dies and is begun again",
    "towline.wakes": "hints of new work: what was lost and is there again",
    "towline.events": "subscribers (`app.on`) that raise",
    "towline.telemetry": "metrics and spans that fail, values of labels beyond their number",
    "towline.dashboard": "who did what there",
    "towline.agent": "what agents did",
}


def page() -> str:
    return "\n".join([HEAD, *_parts()])


def _parts() -> Iterator[str]:
    shown.check("log_fields", SENTENCES, FIELDS)
    yield "| field | | on lines of |\n|---|---|---|"
    for name, sentence in SENTENCES.items():
        yield f"| `{name}` | {sentence} | {_events_with(name)} |"
    yield (
        "\nA line about an attempt that is written in it, by `ctx.log` or by a logger of yours "
        f"whose handler has `towline.logs.InAttempt()`, has {shown.words(OF_ATTEMPT)}.\n"
    )
    yield "## With `--json-logs`\n"
    yield (
        "One object per line: these, and every plain value of `extra=` by its name, yours too.\n"
    )
    shown.check("log_fields", JSON, json.loads(JsonLines().format(_record())))
    yield from _table("key", JSON)
    yield "## Loggers\n"
    shown.check("log_fields", LOGGERS, _loggers())
    yield from _table("logger", LOGGERS)


def _events_with(field: str) -> str:
    if field == "event":
        return "all"
    logged: list[type[kinds.Event]] = [kinds.AttemptStarted, *log.LOGGED]
    found = [event.name for event in logged if field in event.__struct_fields__]
    assert bool(found) == (field not in NO_LINE_YET), f"say what {field} is"
    return shown.words(found)


def _record() -> logging.LogRecord:
    error = ValueError()
    return logging.makeLogRecord({"exc_info": (ValueError, error, None)})


def _loggers() -> set[str]:
    """Every name under which a module of the package logs."""
    texts = [module.path.read_text("utf-8") for module in modules()]
    return {name for text in texts for name in re.findall(r'getLogger\("(towline[\w.]*)"', text)}


def _table(what: str, sentences: dict[str, str]) -> Iterator[str]:
    yield f"| {what} | |\n|---|---|"
    for name, sentence in sentences.items():
        yield f"| `{name}` | {sentence} |"
    yield ""
